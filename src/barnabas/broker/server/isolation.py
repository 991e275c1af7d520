"""Detects that this broker cannot reach the other brokers, although it reaches the metadata store.

Such an isolated broker is still registered, so no other broker can lead its partitions. It cannot commit
records, because its followers do not fetch. It cannot remove the followers from the ISR, because it does not
reach the controller. So it reports in its registration that it is isolated.

The controller then elects other leaders for its partitions, and removes the broker from the ISRs. A partition
without another possible leader keeps its leader.

A controller that reaches none of several other brokers is isolated, too. It resigns as controller, because
leaders need a reachable controller to change an ISR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence

from barnabas.base.errors import BarnabasError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of
from barnabas.base.types import NO_BROKER, BrokerId
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.metadata import MetadataLoader
from barnabas.broker.metadata.image import BrokerImage, BrokerState
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest

log = logger_of(__name__)

#: A broker is isolated after more than this number of consecutive failed checks, which take a session
#: timeout. Checks are counted, not timed: after a pause of the whole process, only one check has failed.
LOOKS = 4
#: largest number of brokers that one check sends a request to
_MAX_ASKED = 8
#: how many others have to be out of a controller's reach: of two brokers neither knows which one is cut off
_FEWEST_OTHERS = 2


class IsolationWatch:
    """Checks periodically whether this broker reaches the other brokers.

    Args:
        view: this broker's settings, and its image (copy) of the cluster's metadata.
        loader: tells whether that image is certainly current.
        peers: the other brokers.
        session_timeout: timeout of the session with the metadata store, in seconds; 0 disables the checks.
            In this time, the broker makes four checks (`LOOKS`). After about this time without contact, this
            broker is isolated.
        partitions: all partitions of this broker.
        sessions: fetch sessions of this broker's followers.
        on_change: called when the broker becomes isolated (True), and when it no longer is (False).
    """

    def __init__(
        self,
        view: BrokerView,
        loader: MetadataLoader,
        peers: BrokerClient,
        session_timeout: float,
        partitions: Iterable[Partition],
        sessions: FetchSessions,
        on_change: Callable[[bool], None],
    ) -> None:
        self._view = view
        self._loader = loader
        self._peers = peers
        self._pause = session_timeout / LOOKS
        self._partitions = partitions
        self._sessions = sessions
        self._on_change = on_change
        self._task: asyncio.Task[None] | None = None
        self.is_isolated = False
        #: looks in vain, one after the other, and who was the controller then
        self._failures = 0
        self._controller = NO_BROKER
        #: whether a broker other than the controller has answered since the first of them
        self._has_reached_another = False
        #: the followers' sessions, as they were when the first look was in vain
        self._seen: dict[BrokerId, tuple[int, int]] = {}

    def start(self) -> None:
        """Start the periodic checks. Do nothing if `session_timeout` is 0 (embedded store, one broker)."""
        if self._pause:
            self._task = start_task(self._run(), "isolation watch", is_vital=True)

    async def stop(self) -> None:
        """Stop the checks."""
        await stop_tasks(self._task)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._pause)
            await self.look()

    async def look(self) -> None:
        """Check once whether this broker reaches the others, and update `is_isolated`.

        The controller sends a request to the other brokers. Any other broker sends one to the controller, and
        after a failed check also to the others. While the image is possibly stale, or no controller is known,
        the check decides nothing. It also decides nothing if there is another controller when it ends.
        Without other running brokers, this broker is not isolated.
        """
        controller = self._view.image.controller_id
        others = [broker.id for broker in self._others()]
        is_known = self._is_controller or controller in others
        if not self._loader.is_certain or not is_known or controller != self._controller:
            self._failures = 0  # silence says nothing, or of somebody else
            self._controller = controller
        if not self._loader.is_certain:
            return
        if not others:
            self._set(isolated=False)
            return
        if not is_known:
            return
        wanted = others if self._is_controller else [controller]
        rest = [broker for broker in others if broker not in wanted] if self._failures else []
        reached = await self._reached([*wanted, *rest][:_MAX_ASKED])
        if not self._loader.is_certain or self._view.image.controller_id != controller:
            return
        if not reached.isdisjoint(wanted):
            self._failures = 0
            self._set(isolated=False)
            return
        self._failures += 1
        if self._failures == 1:
            self._seen = dict(self._sessions_of_followers())
            self._has_reached_another = False
        self._has_reached_another |= bool(reached)
        if self._is_controller:
            self._judge_controller()
        else:
            self._judge(bool(reached))

    def _judge_controller(self) -> None:
        """Decide whether this controller is isolated, after a failed check.

        It is isolated after `LOOKS` + 1 or more consecutive failed checks, if at least two other brokers run.
        """
        if self._failures > LOOKS and len(self._others()) >= _FEWEST_OTHERS:
            self._set(isolated=True)

    def _judge(self, reaches_another: bool) -> None:
        """Decide whether this broker is isolated, after a failed check. It is not the controller.

        - This broker is isolated after `LOOKS` + 2 or more consecutive failed checks. In addition, one of its
          live in-sync followers must not have fetched since the first of these checks. If it is the
          controller that is cut off, the controller makes way first.
        - If this broker has reached another one during these checks, it waits for twice as many. Probably the
          controller is cut off.
        - If the controller has reported that it is isolated, and this broker reaches another one, this broker
          is not isolated. Such a controller is left when all brokers were isolated. It makes way now.
        """
        controller = self._view.image.brokers.get(self._controller)
        looks = 2 * LOOKS if self._has_reached_another else LOOKS
        if reaches_another and controller is not None and controller.is_isolated:
            self._set(isolated=False)
        elif self._failures > looks + 1 and self._has_silent_follower():
            self._set(isolated=True)

    def _others(self) -> list[BrokerImage]:
        """Return the other running brokers, by their ids."""
        return [
            broker
            for _, broker in sorted(self._view.image.brokers.items())
            if broker.id != self._view.node_id and broker.state is BrokerState.RUNNING
        ]

    @property
    def _is_controller(self) -> bool:
        return self._view.image.controller_id == self._view.node_id

    async def _reached(self, brokers: Sequence[BrokerId]) -> set[BrokerId]:
        """Send a request to each of these brokers, and return those that answer in time."""
        answers = (
            self._peers.channel(broker, "isolation").send(ApiVersionsRequest(), timeout_s=self._pause / 2)
            for broker in brokers
        )
        outcomes = await asyncio.gather(*answers, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException) and not isinstance(outcome, BarnabasError):
                raise outcome
        return {
            broker
            for broker, outcome in zip(brokers, outcomes, strict=True)
            if not isinstance(outcome, BarnabasError)
        }

    def _sessions_of_followers(self) -> Iterable[tuple[BrokerId, tuple[int, int]]]:
        for broker in self._view.image.brokers:
            session = self._sessions.of_replica(broker)
            if session is not None:
                yield broker, (session.session_id, session.epoch)

    def _has_silent_follower(self) -> bool:
        """Whether a live in-sync follower of this leader has not fetched since the first failed check."""
        brokers, now = self._view.image.brokers, dict(self._sessions_of_followers())
        silent = {
            broker
            for broker in brokers
            if broker != self._view.node_id and now.get(broker) == self._seen.get(broker)
        }
        return bool(silent) and any(
            partition.is_leader and not silent.isdisjoint(partition.state.isr)
            for partition in self._partitions
        )

    def _set(self, *, isolated: bool) -> None:
        if isolated is self.is_isolated:
            if isolated and self._is_controller and not all(broker.is_isolated for broker in self._others()):
                self._on_change(True)  # it became the controller while all others were isolated
            return
        self.is_isolated = isolated
        if isolated:
            log.error(
                "broker %d cannot reach the other brokers, only the metadata store: it gives its leaderships "
                "to them",
                self._view.node_id,
            )
        else:
            log.info("broker %d can reach the other brokers again", self._view.node_id)
        self._on_change(isolated)
