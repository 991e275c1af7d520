"""Fifth stage: opens the parts that manage this broker's replicas, copy records and change ISRs."""

from __future__ import annotations

from dataclasses import dataclass

from barnabas.broker.coordinator import ProducerIds
from barnabas.broker.logs.shared_fsync import FsyncsByDirectory
from barnabas.broker.replication.following import Following
from barnabas.broker.replication.isr_changes import IsrChanges
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.serving_time import ServingTime
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.server.fetching.read_index import ReadIndex
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.stages.logs import Logs
from barnabas.broker.server.stages.membership import Membership
from barnabas.broker.server.stages.metadata import Metadata


@dataclass(frozen=True, slots=True)
class Replication:
    """The parts of the fifth stage: the replica manager, and the parts that copy records and change ISRs."""

    replicas: ReplicaManager
    throttles: ReplicationThrottles
    fsyncs: FsyncsByDirectory
    following: Following
    isr_changes: IsrChanges
    serving_time: ServingTime
    fetch_sessions: FetchSessions
    read_index: ReadIndex
    producer_ids: ProducerIds


@stage
async def open_replication(
    closing: Closing,
    foundation: Foundation,
    metadata: Metadata,
    logs: Logs,
    membership: Membership,
) -> Replication:
    """Open the replica manager and the other parts of replication, without any partition yet.

    The next stage opens the partitions, because partitions of internal topics need their coordinators.
    """
    view, leadership = foundation.view, membership.leadership
    config, to_controller = view.config, metadata.to_controller
    throttles = ReplicationThrottles(view.node_id, view.configs, view.clock)
    fetch_sessions = FetchSessions(
        config.max_incremental_fetch_session_cache_slots, view.clock, foundation.environment.random
    )
    fsyncs = FsyncsByDirectory(foundation.environment.blocking)
    closing.add(fsyncs.stop)
    following = Following(view, metadata.peers, logs.manager, throttles.follower)
    closing.add(following.stop)
    isr_changes = IsrChanges(view, to_controller.send, leadership.epoch_ended)
    closing.add(isr_changes.stop)
    closing.add(metadata.loader.subscribe(isr_changes.follow))
    serving_time = ServingTime(view)
    closing.add(serving_time.stop)
    replicas = ReplicaManager(
        view.node_id,
        logs.manager,
        view.configs,
        on_flush_due=fsyncs.add,
        on_change=following.partition_changed,
        acks_fsync=config.barnabas_acks_fsync,
        on_isr_change_due=isr_changes.add,
        on_leadership_end=leadership.partition_ended,
        now=serving_time.now,
        max_lag=lambda: view.config.replica_lag_time_max_ms / 1000,
    )
    leadership.add_replicas(replicas)
    logs.on_directory_failure.append(replicas.take_offline)
    serving_time.start(replicas.check_in_sync)
    return Replication(
        replicas=replicas,
        throttles=throttles,
        fsyncs=fsyncs,
        following=following,
        isr_changes=isr_changes,
        serving_time=serving_time,
        fetch_sessions=fetch_sessions,
        read_index=ReadIndex(replicas, fetch_sessions, view),
        producer_ids=ProducerIds(lambda: leadership.allocate_producer_ids(to_controller)),
    )
