"""Bugs to plant in a cluster. Each bug switches off one rule that prevents the loss of records.

`python -m soak.simulated --brokers 3 --bugs` counts the seeds that catch each bug.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from barnabas.base.types import BrokerId
from barnabas.broker.controller import partition_changes, partitions
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.logs.missing_directories import MissingDirectories
from barnabas.broker.metadata.image import BrokerState, ClusterImage, PartitionState
from barnabas.broker.metadata.store import Operation
from barnabas.broker.replication.following.fetch_session import Followed
from barnabas.broker.replication.following.fetcher import ReplicaFetcher
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.flushing import FlushSchedule
from barnabas.broker.replication.partition.follower import Follower
from barnabas.broker.replication.partition.in_sync import InSyncReplicas
from barnabas.broker.replication.partition.leader import Leader
from barnabas.broker.replication.partition.progress import FollowerProgress
from barnabas.broker.server.fetching.fetch import Fetch
from barnabas.broker.server.fetching.read_index import ReadIndex
from barnabas.broker.server.isolation import IsolationWatch
from barnabas.broker.server.leadership import Leadership
from barnabas.broker.server.responses.leaders import Leaders
from barnabas.kafka.protocol.messages.fetch import LeaderIdAndEpoch
from soak.simulated.bugs import Bugs, adding, replaced

#: by name: what it does, and how it is planted
CLUSTER_BUGS: Bugs = {}
_bug = adding(CLUSTER_BUGS)

# --- the leader ---


@_bug("watermark-of-leader", "the high watermark is the leader's own log end")
def _watermark_of_leader() -> Iterator[None]:
    with replaced((InSyncReplicas, "committed_end", lambda self, own_end: own_end)):
        yield


@_bug(
    "watermark-over-committed-isr",
    "the high watermark does not wait for who is proposed for the ISR (KIP-497)",
)
def _watermark_over_committed_isr() -> Iterator[None]:
    def count(self: InSyncReplicas) -> None:
        self.counted = tuple(f for broker, f in self._followers.items() if broker in self._state.isr)
        self.electable = frozenset({*self._state.isr, *self._state.elr})

    with replaced((InSyncReplicas, "_count", count)):
        yield


@_bug(
    "proposal-forgotten", "a proposal counts no more once a state comes, though of the same partition epoch"
)
def _proposal_forgotten() -> Iterator[None]:
    take_state = InSyncReplicas.update

    def taking(self: InSyncReplicas, state: PartitionState) -> None:
        self._proposed, self._unsettled = None, frozenset()
        take_state(self, state)

    with replaced((InSyncReplicas, "update", taking)):
        yield


@_bug("dead-not-counted", "the high watermark does not wait for members of the ISR that are dead")
def _dead_not_counted() -> Iterator[None]:
    def committed_end(self: InSyncReplicas, own_end: int) -> int:
        return min([own_end, *(f.end for f in self.counted if self._is_present(f))])

    with replaced((InSyncReplicas, "committed_end", committed_end)):
        yield


@_bug("min-isr-ignored", "the high watermark moves with fewer than min.insync.replicas in sync (KIP-966)")
def _min_isr_ignored() -> Iterator[None]:
    advance = Leader.advance_high_watermark

    def advancing(self: Leader) -> None:
        with replaced((Leader, "is_under_min_isr", property(lambda self: False))):
            advance(self)

    with replaced((Leader, "advance_high_watermark", advancing)):
        yield


@_bug("isr-before-epoch-start", "a replica joins the ISR before it has the leader epoch's start (Kip320.tla)")
def _isr_before_epoch_start() -> Iterator[None]:
    may_join = InSyncReplicas._may_join

    def joining(self: InSyncReplicas, follower: FollowerProgress) -> bool:
        start, self._epoch_start = self._epoch_start, 0
        try:
            # A replica that has not reached the epoch's start is lagging, too, except right after a restart.
            with replaced((InSyncReplicas, "_is_lagging", lambda self, follower: False)):
                return may_join(self, follower)
        finally:
            self._epoch_start = start

    with replaced((InSyncReplicas, "_may_join", joining)):
        yield


@_bug("isr-without-fetch", "what a follower had in an earlier leader epoch counts in this one")
def _isr_without_fetch() -> Iterator[None]:
    begin, fetched = InSyncReplicas.__init__, InSyncReplicas.fetched
    known: dict[tuple[object, BrokerId], tuple[int, int]] = {}

    def begun(self: InSyncReplicas, *arguments: Any) -> None:
        begin(self, *arguments)
        for broker, follower in self._followers.items():
            if (self._log, broker) in known:
                follower.end, follower.broker_epoch = known[self._log, broker]
                follower.caught_up_at = self._context.now()

    def noting(
        self: InSyncReplicas, replica: BrokerId, broker_epoch: int, offset: int, log_start: int
    ) -> bool:
        known[self._log, replica] = offset, broker_epoch
        return fetched(self, replica, broker_epoch, offset, log_start)

    with replaced((InSyncReplicas, "__init__", begun), (InSyncReplicas, "fetched", noting)):
        yield


@_bug("earlier-life-counts", "what a broker had before its last start counts (KIP-903)")
def _earlier_life_counts() -> Iterator[None]:
    def is_present(self: InSyncReplicas, follower: FollowerProgress) -> bool:
        return follower.broker_id in self._context.brokers()

    with replaced(
        (InSyncReplicas, "_is_present", is_present),
        (InSyncReplicas, "_epoch_of", lambda self, broker: -1),
    ):
        yield


@_bug("divergence-not-told", "a leader sends what follows, whatever a follower's log ends with (KIP-101)")
def _divergence_not_told() -> Iterator[None]:
    with replaced((Fetch, "_diverges", staticmethod(lambda partition, target, data: False))):
        yield


@_bug("deposed-answers", "a broker that the ensemble has given up goes on answering from memory")
def _deposed_answers() -> Iterator[None]:
    with replaced(
        (ReadIndex, "confirm", lambda self, partitions: None),
        (Leadership, "epoch_ended", lambda self, epoch: None),
    ):
        yield


@_bug("preferred-leader-named", "a response names the preferred replica as the new leader (KIP-951)")
def _preferred_leader_named() -> Iterator[None]:
    found = Leaders._find

    def find(self: Leaders, topic: str | bytes, index: int) -> LeaderIdAndEpoch:
        image, leader = self._view.image, found(self, topic, index)
        known = image.topics.get(topic) if isinstance(topic, str) else image.topic_by_id(topic)
        if known is None or leader.leader_id < 0:
            return leader
        preferred = known.partitions[index].replicas[0]
        return LeaderIdAndEpoch(leader_id=preferred, leader_epoch=leader.leader_epoch)

    with replaced((Leaders, "_find", find)):
        yield


# --- the follower ---


@_bug(
    "truncated-to-watermark", "a follower of a new leader epoch cuts its log at its high watermark (KIP-101)"
)
def _truncated_to_watermark() -> Iterator[None]:
    follow = ReplicaFetcher.follow

    def following(self: ReplicaFetcher, partition: Partition) -> None:
        key = (partition.log.topic_id, partition.topic_partition.partition)
        known = self._followed.get(key)
        if known is None or known.leader_epoch != partition.leader_epoch:
            role = partition.follower(partition.leader_epoch)
            if role is not None:
                role.truncate_to(partition.log.high_watermark)
        follow(self, partition)

    with replaced((ReplicaFetcher, "follow", following)):
        yield


@_bug("epoch-of-same-leader-missed", "a fetcher begins anew only when the leader changes (KAFKA-7164)")
def _epoch_of_same_leader_missed() -> Iterator[None]:
    follow = ReplicaFetcher.follow

    def following(self: ReplicaFetcher, partition: Partition) -> None:
        known = self._followed.get((partition.log.topic_id, partition.topic_partition.partition))
        if known is not None and known.partition is partition:
            known.leader_epoch = partition.leader_epoch
        else:
            follow(self, partition)

    with replaced((ReplicaFetcher, "follow", following)):
        yield


@_bug("late-replies", "a follower takes replies of earlier epochs and offsets (KAFKA-18991)")
def _late_replies() -> Iterator[None]:
    take, begin = ReplicaFetcher._process_partition, Followed.__init__

    def begun(self: Followed, partition: Partition) -> None:
        begin(self, partition)
        self.requested_in = 0

    def taking(self: ReplicaFetcher, followed: Followed, data: Any, written: list[Followed]) -> None:
        followed.leader_epoch = followed.partition.leader_epoch
        followed.requested_offset = followed.partition.log.log_end_offset
        take(self, followed, data, written)

    with replaced(
        (Followed, "__init__", begun),
        (Followed, "invalidate_requests", lambda self: None),
        (ReplicaFetcher, "_process_partition", taking),
    ):
        yield


@_bug(
    "watermark-before-truncation", "a reply that tells of a divergence moves the high watermark (KAFKA-14704)"
)
def _watermark_before_truncation() -> Iterator[None]:
    truncate = ReplicaFetcher._truncate

    def truncating(self: ReplicaFetcher, followed: Followed, follower: Follower, data: Any) -> None:
        follower.follow_watermark(data.high_watermark)
        truncate(self, followed, follower, data)

    with replaced((ReplicaFetcher, "_truncate", truncating)):
        yield


@_bug("fetch-before-fsync", "with barnabas.acks.fsync a follower says that it has what is not fsynced")
def _fetch_before_fsync() -> Iterator[None]:
    with replaced((Follower, "is_durable", property(lambda self: True))):
        yield


@_bug("due-after-truncation", "what was due to be fsynced stays due after a truncation has taken it away")
def _due_after_truncation() -> Iterator[None]:
    with replaced((FlushSchedule, "truncated", FlushSchedule.flush_if_due)):
        yield


# --- the controller ---


@_bug("unclean-election", "any replica that runs may lead")
def _unclean_election() -> Iterator[None]:
    def first_of(order: Collection[int], members: Collection[int], electable: frozenset[int]) -> int:
        return next((replica for replica in order if replica in electable), -1)

    with replaced((partition_changes, "_first_of", first_of)):
        yield


def _eligibility_without_stops(image: ClusterImage) -> partition_changes.Eligibility:
    running = frozenset(b.id for b in image.brokers.values() if b.state is BrokerState.RUNNING)
    leaving = frozenset(b.id for b in image.brokers.values() if b.state is BrokerState.SHUTTING_DOWN)
    return partition_changes.Eligibility(running, running, leaving)


@_bug("unclean-restart-stays", "a broker that stopped uncleanly stays in ISR and ELR (KIP-966)")
def _unclean_restart_stays() -> Iterator[None]:
    with replaced((partitions, "eligibility_of", _eligibility_without_stops)):
        yield


@_bug("empty-disk-counts", "a broker with an empty disk has complete replicas for itself and for others")
def _empty_disk_counts() -> Iterator[None]:
    begin = MissingDirectories.__init__

    def beginning(self: MissingDirectories, *args: Any, **options: Any) -> None:
        begin(self, *args, **options)
        self._are_all_lost = False

    with replaced(
        (partitions, "eligibility_of", _eligibility_without_stops),
        (MissingDirectories, "__init__", beginning),
    ):
        yield


@_bug("controller-not-fenced", "a controller that was replaced goes on writing (KAFKA-6082)")
def _controller_not_fenced() -> Iterator[None]:
    async def write(self: ControllerWrites, operations: Sequence[Operation]) -> list[int]:
        return await self._store.multi(operations)

    with replaced(
        (ControllerWrites, "write", write),
        (ControllerWrites, "resign", lambda self: None),
    ):
        yield


# --- isolated brokers ---


@_bug(
    "overtaken-check-counts",
    "a check of the other brokers also counts if there is another controller when it ends",
)
def _overtaken_check_counts() -> Iterator[None]:
    async def look(self: IsolationWatch) -> None:
        controller = self._view.image.controller_id
        others = [broker.id for broker in self._others()]
        wanted = others if self._is_controller else [broker for broker in others if broker == controller]
        if not self._loader.is_certain or controller != self._controller:
            self._failures, self._controller = 0, controller
        if not wanted or not self._loader.is_certain:
            return
        if await self._reached(wanted):
            self._failures = 0
            self._set(isolated=False)
            return
        self._failures += 1
        if self._failures == 1:
            self._seen = dict(self._sessions_of_followers())
        if self._is_controller:
            self._judge_controller()
        else:
            self._judge(reaches_another=False)

    with replaced((IsolationWatch, "look", look)):
        yield
