"""Sixth stage: opens the partitions, and the coordinators of groups, transactions and share state."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial

from barnabas.base.environment.randomness import new_uuid
from barnabas.base.types import (
    GROUP_METADATA_TOPIC,
    SHARE_GROUP_STATE_TOPIC,
    TRANSACTION_STATE_TOPIC,
    TopicPartition,
)
from barnabas.broker.controller import AutoCreation
from barnabas.broker.coordinator import GroupCoordinator, ShareCoordinator, TransactionCoordinator
from barnabas.broker.metadata import ImageDelta
from barnabas.broker.replication.internal_log import ReplicatedLog
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.server.dead_letters.queue import DeadLetterQueues
from barnabas.broker.server.fetching.offset_search import first_since
from barnabas.broker.server.share_state.persister import CoordinatorPersister
from barnabas.broker.server.share_state.pruning import delete_before
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.stages.logs import Logs
from barnabas.broker.server.stages.membership import Membership
from barnabas.broker.server.stages.metadata import Metadata, everything
from barnabas.broker.server.stages.replication import Replication
from barnabas.broker.server.transactions.coordinators import TransactionCoordinators
from barnabas.broker.server.transactions.marker_sender import MarkerSender
from barnabas.broker.server.transactions.markers import MarkerAppender
from barnabas.broker.server.transactions.verification import TransactionVerifier
from barnabas.broker.sharing.sessions import ShareSessions
from barnabas.broker.sharing.share_partitions import SharePartitions
from barnabas.broker.view import BrokerView

#: how long the first use of share groups waits at most for the controller to make their internal topic
_AUTO_CREATION_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class Coordination:
    """The parts of the sixth stage: the coordinators, share partitions and the parts for transactions."""

    view: BrokerView
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    shares: ShareCoordinator
    persister: CoordinatorPersister
    share_partitions: SharePartitions
    share_sessions: ShareSessions
    markers: MarkerAppender
    verifier: TransactionVerifier

    def follow(self, delta: ImageDelta) -> None:
        """Apply a change of the metadata image to the replicas and the coordinators.

        They then start or stop leading, following and coordinating partitions.
        """
        self.replicas.apply(delta)
        self.groups.follow(self.view.node_id, delta)
        self.transactions.follow(self.view.node_id, delta)
        self.shares.follow(self.view.node_id, delta)


@stage
async def open_coordination(
    closing: Closing,
    foundation: Foundation,
    metadata: Metadata,
    logs: Logs,
    membership: Membership,
    replication: Replication,
) -> Coordination:
    """Open this broker's partitions, and the coordinators of groups, transactions and share groups.

    From then on, these parts apply each new image of the cluster's metadata.
    """
    view, environment, replicas = foundation.view, foundation.environment, replication.replicas
    leadership, cold_reads = membership.leadership, foundation.cold_reads
    shares = ShareCoordinator(
        view,
        ReplicatedLog(SHARE_GROUP_STATE_TOPIC, replicas, cold_reads),
        lambda partition, start: delete_before(
            replicas, logs.manager, TopicPartition(SHARE_GROUP_STATE_TOPIC, partition), start
        ),
    )
    closing.add(shares.stop)
    creation = AutoCreation(view, partial(metadata.forwarding.send, timeout_s=_AUTO_CREATION_SECONDS))

    def confirm(partition: TopicPartition) -> asyncio.Future[bool] | None:
        in_doubt = metadata.loader.in_doubt([partition])
        return replication.read_index.confirm(in_doubt) if in_doubt else None

    persister = CoordinatorPersister(view, shares, metadata.peers, creation.create, confirm)
    queues = DeadLetterQueues(
        view, replicas, metadata.peers, foundation.long_work, cold_reads, creation.create
    )
    share_partitions = SharePartitions(
        view,
        replicas,
        persister,
        cold_reads,
        partial(first_since, foundation.long_work, cold_reads),
        queues.writer,
    )
    closing.add(share_partitions.stop)
    share_sessions = ShareSessions(
        lambda: view.config.group_share_max_share_sessions, share_partitions.end_session
    )
    assigning = environment.blocking.pool("group assignments", 1)
    closing.add(assigning.abandon)
    groups = GroupCoordinator(
        view,
        ReplicatedLog(GROUP_METADATA_TOPIC, replicas, cold_reads),
        unique=lambda: str(new_uuid(environment.random)),
        search=foundation.search,
        assigning=assigning,
        persister=persister,
    )
    closing.add(groups.stop)
    markers = MarkerAppender(view, replicas, groups)
    transactions = TransactionCoordinator(
        view,
        ReplicatedLog(TRANSACTION_STATE_TOPIC, replicas, cold_reads),
        MarkerSender(view, metadata.loader.synced, markers, metadata.peers),
        producer_ids=replication.producer_ids.next,
    )
    closing.add(transactions.stop)
    leadership.add_coordinator(groups)
    leadership.add_coordinator(transactions)
    leadership.add_coordinator(shares)
    verifier = TransactionVerifier(view, TransactionCoordinators(view, transactions, metadata.peers, confirm))
    coordination = Coordination(
        view=view,
        replicas=replicas,
        groups=groups,
        transactions=transactions,
        shares=shares,
        persister=persister,
        share_partitions=share_partitions,
        share_sessions=share_sessions,
        markers=markers,
        verifier=verifier,
    )
    now = everything(foundation)
    replication.throttles.apply(now)
    coordination.follow(now)
    for directory in logs.manager.directories:
        if directory.failure is not None:
            replicas.take_offline(directory.path)
    for listener in (replication.throttles.apply, coordination.follow):
        closing.add(metadata.loader.subscribe(listener))  # no change reaches a log that closes
    groups.start()
    transactions.start()
    shares.start()
    return coordination
