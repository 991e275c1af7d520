"""Clients that change a cluster: they move partitions and leaders, drain brokers, and unregister brokers."""

from __future__ import annotations

import contextlib

from barnabas.base.errors import ErrorCode
from barnabas.base.types import NO_BROKER
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.kafka.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.unregister_broker import UnregisterBrokerRequest
from soak.simulated.client import Client, Place, is_retriable, name_of

_PREFERRED, _UNCLEAN = 0, 1
_TOPIC, _BROKER = 2, 4
_SET, _DELETE = 0, 1
#: the settings of a throttle (KIP-73)
_RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
_THROTTLED = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
#: below it a partition would not take writes
_FEWEST = 2
#: changes of leader in a row, at most
_MAX_SWAPS = 6

#: what may be answered to a move or an election that comes at the wrong moment
_UNTIMELY = frozenset(
    {
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    }
)


class Move(Client):
    """Reassigns partitions, also internal ones, cancels reassignments, drains brokers and elects preferred
    leaders.

    Sometimes it makes two replicas lead alternately, often while brokers get the metadata late. A follower
    may then see only the same leader again, while replies of an earlier leader epoch are in flight. Sometimes
    it throttles replicas (KIP-73). If the stage `is_unclean`, it also requests unclean elections, which can
    lose committed records.
    """

    role = "move"

    async def run(self) -> None:
        while not self.stopping:
            await self.rest()
            replicas = await self._replicas()
            if not replicas or self.stopping:
                continue
            acts = [self._reassign, self._reassign, self._give_up, self._drain, self._elect]
            acts += [self._swap, self._swap, self._swap, self._throttle]
            if self.stage.is_unclean:
                acts += [self._elect_uncleanly] * 6
            with contextlib.suppress(ChannelError):
                await self.random.choice(acts)(replicas)
        await self._lift_throttles()

    async def _replicas(self) -> dict[Place, list[int]]:
        """Return the replicas of all partitions, as one broker knows them."""
        try:
            response = await self.ask(MetadataRequest(topics=None))
        except ChannelError:
            return {}
        return {
            (topic.name, part.partition_index): part.replica_nodes
            for topic in response.topics
            if not topic.error_code and topic.name is not None
            for part in topic.partitions
        }

    def _some(self, replicas: dict[Place, list[int]], max_count: int) -> list[Place]:
        places = sorted(replicas)
        return self.random.sample(places, min(len(places), self.random.randint(1, max_count)))

    async def _reassign(self, replicas: dict[Place, list[int]]) -> None:
        brokers = self.stage.broker_ids
        moves: dict[Place, list[int] | None] = {}
        for place in self._some(replicas, 4):
            count = self.random.choice([_FEWEST, self.stage.replicas, self.stage.replicas])
            moves[place] = self.random.sample(brokers, count)
        await self._ask_for(moves)

    async def _give_up(self, replicas: dict[Place, list[int]]) -> None:
        await self._ask_for(dict.fromkeys(self._some(replicas, len(replicas))))

    async def _drain(self, replicas: dict[Place, list[int]]) -> None:
        """Move all replicas away from a random broker.

        If no other broker can have a replica, the replica is only removed, if `_FEWEST` others remain.
        """
        drained = self.random.choice(self.stage.broker_ids)
        moves: dict[Place, list[int] | None] = {}
        for place, held in sorted(replicas.items()):
            if drained in held:
                others = [b for b in self.stage.broker_ids if b != drained and b not in held]
                stay = [b for b in held if b != drained]
                moves[place] = stay + self.random.sample(others, min(1, len(others)))
        await self._ask_for(
            {place: moved for place, moved in moves.items() if moved and len(moved) >= _FEWEST}
        )

    async def _ask_for(self, moves: dict[Place, list[int] | None]) -> None:
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, number), replicas in moves.items():
            topics.setdefault(topic, []).append(
                ReassignablePartition(partition_index=number, replicas=replicas)
            )
        if not topics:
            return
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=3000,
            topics=[ReassignableTopic(name=name, partitions=parts) for name, parts in topics.items()],
        )
        response = await self.ask_controller(request)
        codes = [part.error_code for topic in response.responses for part in topic.partitions]
        self._judge([response.error_code, *codes], "AlterPartitionReassignments")

    async def _elect(self, replicas: dict[Place, list[int]]) -> None:
        is_for_all = self.random.random() < 0.3
        await self._ask_to_elect(None if is_for_all else self._some(replicas, len(replicas)))

    async def _swap(self, replicas: dict[Place, list[int]]) -> None:
        count, pauses = self.random.randint(2, _MAX_SWAPS), [0.0, 0.02, 0.2]
        if self.random.random() < 0.6:  # there and back at once, while others hear of nothing
            count, pauses = self.random.choice([2, 2, 4]), [0.0]
            self.stage.hold_back(self.random)
        for _ in range(count):
            swapped: dict[Place, list[int]] = {
                place: [held[1], held[0], *held[2:]]
                for place, held in sorted(replicas.items())
                if len(held) > 1 and not place[0].startswith("__")
            }
            await self._ask_for(dict(swapped))
            await self._ask_to_elect(sorted(swapped))
            replicas = swapped
            await self.pause_for(self.random.choice(pauses))

    async def _elect_uncleanly(self, replicas: dict[Place, list[int]]) -> None:
        await self._ask_to_elect(sorted(replicas), _UNCLEAN)

    async def _throttle(self, replicas: dict[Place, list[int]]) -> None:
        """Throttle the replicas of some topics during a reassignment, or end the throttle."""
        if self.random.random() < 0.3:
            await self._configure(replicas, rate=None)
            return
        throttled = {place: replicas[place] for place in self._some(replicas, 6)}
        await self._configure(throttled, rate=self.random.choice([2000, 20_000]))
        await self._reassign(throttled)

    async def _lift_throttles(self) -> None:
        while True:
            replicas = await self._replicas()
            with contextlib.suppress(ChannelError):
                if replicas and not any(await self._configure(replicas, rate=None)):
                    return
            await self.back_off()

    async def _configure(self, replicas: dict[Place, list[int]], rate: int | None) -> list[int]:
        """Set the throttle of topics to `rate` bytes a second for each broker; None ends it. Return the error
        codes.
        """
        operation = _DELETE if rate is None else _SET

        def resource(kind: int, name: str, settings: tuple[str, ...], value: str) -> AlterConfigsResource:
            configs = [AlterableConfig(name=s, config_operation=operation, value=value) for s in settings]
            return AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)

        topics = dict.fromkeys(topic for topic, _ in sorted(replicas))
        resources = [resource(_TOPIC, topic, _THROTTLED, "*") for topic in topics]
        resources += [resource(_BROKER, str(b), _RATES, str(rate)) for b in self.stage.broker_ids]
        response = await self.ask_controller(IncrementalAlterConfigsRequest(resources=resources))
        codes = [answer.error_code for answer in response.responses]
        # INVALID_REQUEST: the broker is away.
        self._judge([code for code in codes if code != ErrorCode.INVALID_REQUEST], "IncrementalAlterConfigs")
        return [code for code in codes if code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]

    async def _ask_to_elect(self, places: list[Place] | None, election: int = _PREFERRED) -> None:
        topics: dict[str, list[int]] = {}
        for topic, number in places or ():
            topics.setdefault(topic, []).append(number)
        request = ElectLeadersRequest(
            election_type=election,
            timeout_ms=3000,
            topic_partitions=None
            if places is None
            else [TopicPartitions(topic=name, partitions=numbers) for name, numbers in topics.items()],
        )
        response = await self.ask_controller(request)
        codes = [
            part.error_code for each in response.replica_election_results for part in each.partition_result
        ]
        self._judge([response.error_code, *codes], "ElectLeaders")

    def _judge(self, codes: list[int], what: str) -> None:
        for code in codes:
            self.note_code(code, what)
            if code and not is_retriable(code) and code not in _UNTIMELY:
                self.stage.complain("move-refused", f"{self.name}: {what} was answered {name_of(code)}")


class Unregister(Client):
    """Unregisters brokers that do not run, unless a partition has no leader: it can wait for one of them.

    They return later, like brokers that stopped uncleanly: they are no longer members of an ELR.
    """

    role = "unregister"

    async def run(self) -> None:
        while not self.stopping:
            await self.rest()
            with contextlib.suppress(ChannelError):
                response = await self.ask(MetadataRequest(topics=None))
                if any(part.leader_id == NO_BROKER for topic in response.topics for part in topic.partitions):
                    continue
                there = {broker.node_id for broker in response.brokers}
                for broker in self.stage.broker_ids:
                    if broker not in there:
                        await self._unregister(broker)

    async def _unregister(self, broker: int) -> None:
        code = (await self.ask_controller(UnregisterBrokerRequest(broker_id=broker))).error_code
        self.note_code(code, "UnregisterBroker")
        # It runs again, or is unregistered already.
        expected = (ErrorCode.INVALID_REQUEST, ErrorCode.BROKER_ID_NOT_REGISTERED)
        if code and not is_retriable(code) and code not in expected:
            self.stage.complain("move-refused", f"{self.name}: UnregisterBroker was answered {name_of(code)}")
