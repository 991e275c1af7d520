"""The base of all simulated clients: a host, a history, connections, and retries."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from simulation.virtual_time import VirtualProcess

from barnabas.base.errors import ErrorCode
from barnabas.base.types import ZERO_TOPIC_ID
from barnabas.broker.interbroker.channel import Channel, ChannelSettings
from barnabas.broker.interbroker.errors import ChannelError, NotConnectedError
from barnabas.kafka.protocol.messages.fetch import LeaderIdAndEpoch
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.schema import Request
from soak.roles.common import Task
from soak.simulated.routing import Coordinated, Place, Routes
from soak.simulated.stage import PORT, SKEW_MS, MemoryRecorder, Stage, host_of, rack_of

__all__ = ["GROUP", "TRANSACTION", "Client", "GaveUp", "Place", "code_of", "is_retriable", "name_of", "named"]

#: kinds of coordinators
GROUP, TRANSACTION = 0, 1

#: seconds
_TIMEOUT = 4.0
_BACKOFF = (0.05, 0.4)
#: the factor of all pauses in the calm, which only has to show that clients make progress
_CALM_PACE = 5
#: seconds; shorter than the calm, so that a client that only pauses is not stalled
_LONGEST_REST = 2.0
_SETTINGS = ChannelSettings(
    request_timeout=_TIMEOUT, connect_timeout=2.0, reconnect_backoff=0.05, reconnect_backoff_max=0.5
)


class GaveUp(Exception):
    """This client ends by itself: a broker fenced it, or it may not continue. The simulation starts another
    one.
    """


class Client:
    """One simulated client. A subclass implements `run`, which works until `stopping` is true.

    Attributes:
        by_id: whether the client names topics by their ids, in requests where the protocol has both.
    """

    role: ClassVar[str] = ""

    def __init__(self, stage: Stage, task: Task, life: int = 1) -> None:
        self.stage = stage
        self.task = task
        self.name = f"{task.name}.{life}"
        self.random = stage.random(self.name)
        self.stopping = False
        #: somebody else sees to who comes next
        self.is_replaced = False
        self.host = stage.network.host(self.name)
        self.recorder = MemoryRecorder(
            stage,
            name=self.name,
            role=self.role,
            client="simulated",
            group=task.group,
            isolation=task.isolation,
            transactional_id=task.transactional_id,
            # a transaction may be begun by the clock of one coordinator, and too old by another's
            transaction_timeout=(task.transaction_timeout_ms - 2 * SKEW_MS) * 1_000_000,
        )
        self.by_id = self.random.random() < 0.5
        #: where it reads, if that can be (KIP-392)
        self.rack = self.random.choice(["", *map(rack_of, stage.broker_ids)])
        self.topic_ids: dict[str, bytes] = {}
        self.topic_names: dict[bytes, str] = {}
        self.partitions: dict[str, int] = {}
        self.routes = Routes(stage.broker_ids, self.random)
        self._process = VirtualProcess(self.name)
        self._channels: dict[tuple[int, str], Channel] = {}
        self._running: asyncio.Event | None = None
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> None:
        raise NotImplementedError

    # --- for the stage manager ---

    def start(self) -> None:
        self._process.run(self._live())

    def pause(self) -> None:
        """Stop the client as SIGSTOP does, until `resume`. The network of its host continues."""
        self._running = asyncio.Event()

    def resume(self) -> None:
        running, self._running = self._running, None
        if running is not None:
            running.set()

    def kill(self, *, silently: bool) -> None:
        """End the client now. With `silently`, its peers get no message: the connections are half-open."""
        if self._process.is_alive:
            self._process.kill()
            if silently:
                self.stage.network.power_off(self.name)
            else:
                self.host.kill()
        if not self.finished.done():
            self.finished.set_result(None)

    @property
    def is_alive(self) -> bool:
        return not self.finished.done()

    async def _live(self) -> None:
        try:
            await self.run()
        except GaveUp as reason:
            self.stage.trace.note(f"{self.name} gave up: {reason}")
        except Exception as error:
            if not self._process.is_alive:
                return  # so it was closed
            self.stage.complain("client-failed", f"{self.name}: {type(error).__name__}: {error}")
            raise
        finally:
            if self._process.is_alive:
                for channel in self._channels.values():
                    await channel.close()
                if not self.finished.done():
                    self.finished.set_result(None)

    # --- for the client ---

    async def going(self) -> None:
        """Wait until the client is not paused."""
        while self._running is not None:
            await self._running.wait()

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return asyncio.get_running_loop().time()

    async def pause_for(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        await self.going()

    async def rest(self) -> None:
        """Pause for the time that the task says, on average. In the calm, pause longer to save CPU time."""
        seconds = self.random.expovariate(1 / self.task.pause)
        if self.stage.is_calm:
            seconds = min(seconds * _CALM_PACE, _LONGEST_REST)
        await self.pause_for(seconds)

    async def back_off(self) -> None:
        await self.pause_for(self.random.uniform(*_BACKOFF))

    def channel(self, broker: int, purpose: str = "main") -> Channel:
        channel = self._channels.get((broker, purpose))
        if channel is None:
            host = host_of(broker)
            channel = self._channels[broker, purpose] = Channel(
                self.host,
                lambda: (host, PORT),
                name=host,
                client_id=self.name,
                rng=self.random,
                settings=_SETTINGS,
            )
        return channel

    async def ask(
        self,
        request: Request,
        *,
        broker: int | None = None,
        purpose: str = "main",
        timeout: float = _TIMEOUT,
        max_version: int | None = None,
    ) -> Any:
        """Send a request to a broker, or to any broker, and return the answer.

        Raises:
            ChannelError: there is no answer.
        """
        await self.going()
        channel = self.channel(self.routes.anyone() if broker is None else broker, purpose)
        response = await channel.send(request, timeout_s=timeout, max_version=max_version)
        await self.going()
        return response

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        request: Request,
        *,
        purpose: str = "main",
        timeout: float = _TIMEOUT,
        max_version: int | None = None,
    ) -> Any:
        """Send a request to the coordinator of a group (`GROUP`) or a transactional id, and return the
        answer.

        Raises:
            ChannelError: there is no answer.
        """
        broker = await self._coordinator((kind, key))
        try:
            response = await self.ask(
                request, broker=broker, purpose=purpose, timeout=timeout, max_version=max_version
            )
        except ChannelError:
            self.routes.doubt_coordinator((kind, key))
            raise
        self.routes.judge_coordinator((kind, key), response)
        return response

    async def ask_leader(self, place: Place, request: Request) -> Any:
        """Send a request to the leader of a partition, and return the answer.

        Raises:
            ChannelError: there is no answer, or no known leader.
        """
        broker = await self.find_leader(place)
        if broker is None:
            raise NotConnectedError(f"{place} has no leader")
        try:
            return await self.ask(request, broker=broker)
        except ChannelError:
            self.routes.doubt_leader(place)
            raise

    async def ask_controller(self, request: Request) -> Any:
        """Send a request to the controller, sometimes through another broker, and return the answer.

        Raises:
            ChannelError: there is no answer.
        """
        if self.random.random() < 0.5:
            return await self.ask(request)
        if self.routes.controller is None:
            await self.learn()
        controller = self.routes.controller
        if controller is None:
            raise NotConnectedError("there is no controller")
        self.routes.doubt_controller()  # it may be another the next time
        return await self.ask(request, broker=controller)

    async def insist(
        self,
        request: Callable[[], Request],
        codes: Callable[[Any], Iterable[int]],
        *,
        of: Coordinated | None = None,
        max_version: int | None = None,
        give_up: Callable[[], bool] = lambda: False,
        again: frozenset[int] = frozenset(),
        patient: bool = True,
    ) -> Any:
        """Repeat a request until the answer has no retriable error, and return the answer.

        Return None if `give_up` becomes true. The request goes to the coordinator `of`, or to any broker.

        Raises:
            ChannelError: there is no answer, and `patient` is false.
        """
        while True:
            try:
                if of is None:
                    response = await self.ask(request(), max_version=max_version)
                else:
                    response = await self.ask_coordinator(*of, request(), max_version=max_version)
            except ChannelError as error:
                if not patient and error.may_have_been_carried_out:
                    raise
            else:
                found = list(codes(response))
                for code in found:
                    self.note_code(code, request)
                if not any(is_retriable(code) or code in again for code in found):
                    return response
            if give_up():
                return None
            await self.back_off()

    def note_code(self, code: int, request: object) -> None:
        if code == ErrorCode.UNKNOWN_SERVER_ERROR:
            self.stage.complain("server-error", f"{self.name} was answered UNKNOWN_SERVER_ERROR")

    def judge_leader(self, place: Place, code: int, request: object) -> None:
        """Note the error code of a partition in an answer. After an error, ask for the leader again."""
        self.note_code(code, request)
        if code:
            self.routes.doubt_leader(place)

    def check_named_leader(self, topic_id: bytes, partition: int, named: LeaderIdAndEpoch) -> None:
        """Check a leader that a response names for a rejected partition (KIP-951).

        Without a topic id, or on a lone broker, check nothing.
        """
        if named.leader_id < 0 or topic_id == ZERO_TOPIC_ID or self.stage.leader_in is None:
            return
        decided = self.stage.leader_in(topic_id, partition, named.leader_epoch)
        if decided != named.leader_id:
            self.stage.complain(
                "wrong-leader-named",
                f"{self.name}, {topic_id.hex()}, partition {partition}: {named.leader_id} was named, but in "
                f"leader epoch {named.leader_epoch} {decided} leads",
            )

    async def learn(self, *topics: str) -> bool:
        """Request ids, partitions and leaders of topics, or of all topics. Return whether there was an
        answer.
        """
        asked = [MetadataRequestTopic(name=topic) for topic in topics] if topics else None
        try:
            response = await self.ask(MetadataRequest(topics=asked, allow_auto_topic_creation=False))
        except ChannelError:
            return False
        self.routes.learn(response)
        for topic in response.topics:
            if topic.error_code == ErrorCode.NONE and topic.name is not None:
                self.topic_ids[topic.name] = topic.topic_id
                self.topic_names[topic.topic_id] = topic.name
                self.partitions[topic.name] = len(topic.partitions)
            elif topic.name is not None:
                self.topic_ids.pop(topic.name, None)
        return True

    async def find_leader(self, place: Place) -> int | None:
        """Return the leader of a partition, after a Metadata request if necessary; None if it is unknown."""
        if self.routes.leader_of(place) is None:
            await self.learn(place[0])
        return self.routes.leader_of(place)

    async def by_leader(self, places: Iterable[Place]) -> dict[int, list[Place]]:
        """Group partitions by their leader. The result has no partitions without a known leader."""
        places = list(places)
        unknown = dict.fromkeys(
            topic for topic, number in places if self.routes.leader_of((topic, number)) is None
        )
        if unknown:
            await self.learn(*unknown)
        found: dict[int, list[Place]] = {}
        for place in places:
            leader = self.routes.leader_of(place)
            if leader is not None:
                found.setdefault(leader, []).append(place)
        return found

    async def _coordinator(self, key: Coordinated) -> int:
        """Return the coordinator.

        Raises:
            ChannelError: no broker names a coordinator.
        """
        known = self.routes.coordinator_of(key)
        if known is not None:
            return known
        kind, name = key
        answer = (
            await self.ask(FindCoordinatorRequest(key_type=kind, coordinator_keys=[name]))
        ).coordinators[0]
        self.note_code(answer.error_code, "FindCoordinator")
        if answer.error_code:
            raise NotConnectedError(f"nobody coordinates {name}: {name_of(answer.error_code)}")
        self.routes.learn_coordinator(key, answer.node_id)
        return int(answer.node_id)

    async def find_coordinator(self, key: str, kind: int) -> None:
        """Repeat FindCoordinator until the coordinator of a group (`GROUP`) or a
        transactional id is known.
        """
        while not self.stopping and self.routes.coordinator_of((kind, key)) is None:
            try:
                await self._coordinator((kind, key))
            except ChannelError:
                await self.back_off()

    async def know(self, topics: Iterable[str]) -> None:
        """Repeat Metadata until the ids of all these topics are known."""
        while missing := [topic for topic in topics if topic not in self.topic_ids]:
            if not await self.learn(*missing) or any(topic not in self.topic_ids for topic in missing):
                if self.stopping:
                    raise GaveUp("stopped before its topics were there")
                await self.back_off()


def code_of(code: int) -> ErrorCode:
    return ErrorCode(code)  # type: ignore[call-arg]  # it has more fields than its number


def is_retriable(code: int) -> bool:
    return code != ErrorCode.NONE and code_of(code).retriable


def named(task: Task, name: str) -> Task:
    """Return a copy of the task whose records have ids of this client."""
    return replace(task, name=name)


def name_of(code: int) -> str:
    return code_of(code).name
