"""Conditions that are true within a broker at every moment, even if no client can see them."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from barnabas.base.types import GROUP_METADATA_TOPIC
from barnabas.broker.coordinator.groups.classic.group import ClassicGroup
from barnabas.broker.coordinator.groups.classic.states import GroupState
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.broker import Broker
from soak.roles.common import SESSION_MS
from soak.simulated.broker import SimulatedBroker
from soak.simulated.cast import Cast
from soak.simulated.cluster import SimulatedCluster, partitions_of
from soak.simulated.stage import Stage

_EVERY = 0.1
#: how long a member that died may still be in its group, in seconds: its session, and what it may wait for
_LONGEST_MEMBERSHIP = SESSION_MS / 1000 + 9.0


class _Bounds(NamedTuple):
    start: int
    stable: int
    watermark: int
    end: int


class Invariants:
    """Checks the parts of all brokers ten times a second."""

    def __init__(self, stage: Stage, cluster: SimulatedCluster, cast: Cast) -> None:
        self._brokers = [_OfBroker(stage, broker, cast) for broker in cluster.brokers.values()]
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.result()

    @property
    def has_orphans(self) -> bool:
        """Whether a member is in a group though its client is dead."""
        return any(broker.has_orphans for broker in self._brokers)

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_EVERY)
            self.check()

    def check(self) -> None:
        """Report each condition that is not true now."""
        for broker in self._brokers:
            broker.check()


class _OfBroker:
    """Checks the parts of one broker."""

    def __init__(self, stage: Stage, broker: SimulatedBroker, cast: Cast) -> None:
        self._stage = stage
        self._broker = broker
        self._cast = cast
        #: whether others have what this one has, so that its logs may be cut
        self._is_alone = len(stage.broker_ids) == 1
        self._seen: Broker | None = None
        #: by topic, its id and partition
        self._bounds: dict[object, _Bounds] = {}
        #: snapshots of producers that lie behind their log's end
        self._stale: dict[int, None] = {}
        #: since when a member is in a group though its client is dead
        self._orphans: dict[tuple[str, str], float] = {}
        broker.on_start = self.check

    @property
    def has_orphans(self) -> bool:
        return bool(self._orphans)

    def check(self) -> None:
        broker = self._broker.broker
        if broker is not self._seen:
            self._seen = broker
            self._bounds.clear()  # a start may cut logs off
            self._orphans.clear()
        if broker is not None:
            self._check_partitions(broker)
            self._check_groups(broker)

    def _check_partitions(self, broker: Broker) -> None:
        for partition in partitions_of(broker):
            log = partition.log
            now = _Bounds(
                log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
            )
            if not now.start <= now.watermark <= now.end or now.stable > now.watermark:
                self._stage.complain("bounds", self._described(partition, now))
            latest = max(log.files.snapshots, default=0)
            if latest > now.end and latest not in self._stale:
                self._stale[latest] = None
                name = self._described(partition, now)
                self._stage.complain("stale-snapshot", f"{name}, a snapshot of producers as of {latest}")
            before = self._bounds.get(partition)
            if before is not None and (
                now.start < before.start
                or (self._is_alone and (now.watermark < before.watermark or now.end < before.end))
            ):
                self._stage.complain("bounds-fell", f"{self._described(partition, now)}, before {before}")
            self._bounds[partition] = now

    def _described(self, partition: Partition, now: _Bounds) -> str:
        return f"{partition.topic_partition} of {self._broker.name}: {now}"

    def _check_groups(self, broker: Broker) -> None:
        alive = {client.name for client in self._cast.lives if client.is_alive}
        there: dict[tuple[str, str], None] = {}
        logs = broker.replicas._topics.get(GROUP_METADATA_TOPIC, {})
        for index, shard in broker.groups.active_shards():
            # else the coordinator cannot store that a member is gone
            can_store = index in logs and not logs[index].is_under_min_isr
            for group in shard.groups.values():
                if isinstance(group, ConsumerGroup):
                    self._check_owners(group)
                    members = [(member.member_id, member.client_id) for member in group.members.values()]
                elif isinstance(group, ClassicGroup) and group.state is GroupState.STABLE:
                    members = [(member.member_id, member.client_id) for member in group.members]
                else:
                    continue
                for member_id, client_id in members:
                    if can_store and client_id not in alive:
                        there[group.group_id, member_id] = None
        now = asyncio.get_running_loop().time()
        self._orphans = {key: self._orphans.get(key, now) for key in there}
        for (group_id, member_id), since in list(self._orphans.items()):
            if now - since > _LONGEST_MEMBERSHIP:
                self._stage.complain("dead-member", f"{member_id} is dead and still in {group_id}")
                self._orphans[group_id, member_id] = float("inf")

    def _check_owners(self, group: ConsumerGroup) -> None:
        """Check that no partition has two owners in a group, now or in the target assignment."""
        owners: dict[tuple[bytes, int], str] = {}
        targets: dict[tuple[bytes, int], str] = {}
        for member in group.members.values():
            for topic, numbers in [*member.assigned.items(), *member.revoking.items()]:
                for number in sorted(numbers):
                    other = owners.setdefault((topic, number), member.member_id)
                    if other != member.member_id:
                        what = f"{number} of {topic.hex()} in {group.group_id}"
                        self._stage.complain("two-owners", f"{what}: {other} and {member.member_id}")
        for member_id, target in group.targets.items():
            for topic, numbers in target.items():
                for number in sorted(numbers):
                    other = targets.setdefault((topic, number), member_id)
                    if other != member_id:
                        what = f"{number} of {topic.hex()} in {group.group_id}"
                        self._stage.complain("two-owners", f"{what} is meant for {other} and {member_id}")
