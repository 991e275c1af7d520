"""Checks that a follower joins an ISR only by its own fetch, in the present leader epoch and broker epoch."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from simulation.virtual_time import VirtualProcess

from barnabas.base.types import BrokerId, Buffer, LeaderEpoch, Offset, TopicPartition
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.replication.fetch_layout import Position
from barnabas.broker.replication.following.fetch_session import Followed, Key
from barnabas.broker.replication.following.fetcher import ReplicaFetcher
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition.follower import Follower
from barnabas.broker.replication.partition.leader import Leader
from barnabas.broker.storage.log import PartitionLog
from barnabas.kafka.protocol.messages.fetch import PartitionData
from soak.simulated.bugs import replaced
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.stage import Stage


class Joining:
    """Records the fetches of each follower, for each of its broker processes."""

    def __init__(self, stage: Stage, cluster: SimulatedCluster) -> None:
        self._stage = stage
        self._cluster = cluster
        cluster.decisions.on_joined = self._joined
        #: by process and partition: the last leader epoch in which it was fetched
        self._fetched: dict[tuple[str, Key], LeaderEpoch] = {}

    @contextmanager
    def observing(self) -> Iterator[None]:
        """Observe each partition in a fetch, each reply, each append and each truncation of a follower."""
        tell, append, note_truncation = (
            Followed.request_position,
            Follower.append,
            PartitionLog.note_truncation,
        )
        take, advance = ReplicaFetcher._process_partition, PartitionLog.advance_high_watermark
        follow = ReplicaFetcher.follow

        def advancing(log: PartitionLog, offset: Offset) -> bool:
            has_moved = advance(log, offset)
            if has_moved and isinstance(log.listener, Partition) and log.listener.is_leader:
                self._check_counted(log.listener)
            return has_moved

        def telling(followed: Followed, number: int, max_bytes: int) -> Position:
            self._fetched[_process(), followed.key] = followed.leader_epoch
            return tell(followed, number, max_bytes)

        def taking(
            fetcher: ReplicaFetcher, followed: Followed, data: PartitionData, written: list[Followed]
        ) -> None:
            self._check_reply(followed)
            take(fetcher, followed, data, written)

        def appending(follower: Follower, records: Buffer, leader_epoch: LeaderEpoch) -> None:
            self._check_asked(follower._log, leader_epoch, "records")
            append(follower, records, leader_epoch)

        def following(fetcher: ReplicaFetcher, partition: Partition) -> None:
            known = fetcher._followed.get((partition.log.topic_id, partition.topic_partition.partition))
            before = None if known is None or known.partition is not partition else known.leader_epoch
            follow(fetcher, partition)
            if before is not None and before != partition.leader_epoch:
                self._check_restart(fetcher, partition, before)

        def ending(log: PartitionLog, end: Offset) -> None:
            self._check_truncation(log, end)
            note_truncation(log, end)

        with replaced(
            (Followed, "request_position", telling),
            (ReplicaFetcher, "_process_partition", taking),
            (ReplicaFetcher, "follow", following),
            (Follower, "append", appending),
            (PartitionLog, "note_truncation", ending),
            (PartitionLog, "advance_high_watermark", advancing),
        ):
            yield

    def _check_restart(self, fetcher: ReplicaFetcher, partition: Partition, before: LeaderEpoch) -> None:
        """Check that a follower fetches again when its leader begins a new leader epoch."""
        followed = fetcher._followed[partition.log.topic_id, partition.topic_partition.partition]
        follower = partition.follower(partition.leader_epoch)
        if follower is not None and follower.is_durable and followed not in fetcher._due:
            self._stage.complain(
                "epoch-not-begun",
                f"{partition.topic_partition} of {_process()} follows broker {fetcher.leader} in "
                f"leader epoch {partition.leader_epoch} as it did in {before}",
            )

    def _check_reply(self, followed: Followed) -> None:
        """Check that a follower uses a reply, even an error, only if it sent the request in its present
        leader epoch.
        """
        log = followed.partition.log
        is_heeded = followed.partition.follower(followed.leader_epoch) is not None
        if is_heeded and log.log_end_offset == followed.requested_offset:
            self._check_asked(log, followed.leader_epoch, "a reply")

    def _check_asked(self, log: PartitionLog, leader_epoch: LeaderEpoch, what: str) -> None:
        asked_in = self._fetched.get((_process(), (log.topic_id, log.topic_partition.partition)))
        if asked_in != leader_epoch:
            self._stage.complain(
                "epoch-not-asked",
                f"{log.topic_partition} of {_process()} takes {what} in leader epoch {leader_epoch}, "
                f"and asked last in {asked_in}",
            )

    def _check_truncation(self, log: PartitionLog, end: Offset) -> None:
        is_follower = isinstance(log.listener, Partition) and not log.listener.is_leader
        if is_follower and log.log_start_offset < end < log.high_watermark:
            self._stage.complain(
                "cut-below-watermark",
                f"{log.topic_partition} of {_process()} to {end}, its high watermark is {log.high_watermark}",
            )

    def _check_counted(self, leader: Partition) -> None:
        """Check each member of the ISR when a high watermark advances.

        The member must have fetched in this leader epoch, with its present process.
        """
        leading = self._cluster.running.get(leader.state.leader)
        key = leader.log.topic_id, leader.topic_partition.partition
        if leading is None:
            return
        for broker_id in leader.state.isr:
            broker, known = self._cluster.running.get(broker_id), leading.image.brokers.get(broker_id)
            process = self._cluster.brokers[broker_id].process_name
            if broker_id == leader.state.leader or broker is None or known is None or process is None:
                continue
            if known.epoch != broker.controller.registration.epoch:
                continue  # the leader has not heard yet that it is another life
            asked_in = self._fetched.get((process, key), -1)
            if asked_in < leader.leader_epoch:
                self._stage.complain(
                    "counted-without-fetch",
                    f"{leader.topic_partition} to {leader.log.high_watermark} in leader epoch "
                    f"{leader.leader_epoch}, broker {broker_id} fetched last in {asked_in}: {leader.state}",
                )

    def _joined(self, name: TopicPartition, broker_id: BrokerId, state: PartitionState) -> None:
        """Check a replica that has joined the ISR by a proposal of its leader, within one leader epoch."""
        broker, leading = self._cluster.running.get(broker_id), self._cluster.running.get(state.leader)
        process = self._cluster.brokers[broker_id].process_name
        key = self._cluster.decisions.topic_ids[name.topic], name.partition
        if broker is None or process is None:
            return  # it has died since
        where = f"broker {broker_id} joins the ISR of {name}: {state}"
        if self._fetched.get((process, key), -1) < state.leader_epoch:
            self._stage.complain("joined-without-fetch", where)
        replica = broker.replicas._topics.get(key[0], {}).get(key[1])
        leader = None if leading is None else leading.replicas._topics.get(key[0], {}).get(key[1])
        if replica is None or leader is None or leader.leader_epoch != state.leader_epoch:
            return
        role = leader._role
        if isinstance(role, Leader) and replica.leader_epoch == state.leader_epoch:
            needed = max(role.epoch_start, leader.log.high_watermark)
            if replica.log.log_end_offset < needed:
                self._stage.complain(
                    "joined-early", f"{where}: it ends at {replica.log.log_end_offset}, needed is {needed}"
                )


def _process() -> str:
    process = VirtualProcess.current()
    return "" if process is None else process.name
