"""Seventh stage: starts background work on the logs, the keys and the deleted topics."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass

from barnabas.base.errors import KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.controller.deletion_notes import DeletionNotes
from barnabas.broker.logs.cleaner import LogCleaner
from barnabas.broker.logs.jobs import Job, stop_all, upkeep
from barnabas.broker.logs.moves import LogMoves
from barnabas.broker.metadata import ImageDelta
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.network.tls_keys import CHECK_MS
from barnabas.broker.server.stages.binding import Binding
from barnabas.broker.server.stages.closing import Closing, stage
from barnabas.broker.server.stages.coordination import Coordination
from barnabas.broker.server.stages.foundation import Foundation
from barnabas.broker.server.stages.logs import Logs
from barnabas.broker.server.stages.membership import Membership
from barnabas.broker.server.stages.metadata import Metadata
from barnabas.broker.server.stages.replication import Replication


@dataclass(frozen=True, slots=True)
class Upkeep:
    """The parts of the seventh stage: they clean and move logs in the background."""

    cleaner: LogCleaner[Partition]
    moves: LogMoves


@stage
async def open_upkeep(
    closing: Closing,
    foundation: Foundation,
    binding: Binding,
    metadata: Metadata,
    logs: Logs,
    membership: Membership,
    replication: Replication,
    coordination: Coordination,
) -> Upkeep:
    """Start the periodic jobs, the log cleaner, and the moves of logs between log directories.

    All of them run in the background after this function has returned. `closing` stops them.
    """
    view, environment, manager = foundation.view, foundation.environment, logs.manager
    replicas, fsyncs = replication.replicas, replication.fsyncs

    def serve_opened(partitions: Collection[TopicPartition]) -> None:
        """Start to host partitions whose logs a job has opened after an earlier failure."""
        numbers = defaultdict[str, list[int]](list)
        for topic, number in partitions:
            numbers[topic].append(number)
        image, names = view.image, frozenset(numbers)
        coordination.follow(ImageDelta(image, image, topics=names, partitions=numbers, topic_configs=names))
        moves.start()

    def flush(partition: TopicPartition) -> None:
        with suppress(KafkaError):
            fsyncs.add(replicas.find(*partition))

    moves = LogMoves(view, manager, environment, flush)
    jobs = upkeep(view, manager, serve_opened)
    if binding.token_keys is not None:
        interval_ms = view.config.delegation_token_expiry_check_interval_ms
        jobs.append(Job("delegation tokens", interval_ms, membership.controller.tokens.delete_expired))
    keys = binding.tls_keys
    if keys is not None:
        await keys.check(binding.disk, is_start=True)
        closing.add(
            metadata.loader.subscribe(
                lambda delta: keys.check_now(binding.disk) if delta.broker_configs else None
            )
        )
        jobs.append(Job("keys of the listeners", CHECK_MS, lambda: keys.check(binding.disk)))
    notes = DeletionNotes(metadata.store, metadata.loader, view.node_id, manager.topics_without_folder)
    closing.add(notes.stop)
    closing.add(metadata.loader.subscribe(notes.on_image))
    notes.on_image(ImageDelta(view.image, view.image))
    closing.add(lambda: stop_all(jobs))
    for job in jobs:
        job.start()
    cleaner = LogCleaner(view, replicas, manager, environment, fsyncs.add)
    closing.add(cleaner.stop)
    cleaner.start()
    closing.add(moves.stop)
    moves.start()
    return Upkeep(cleaner, moves)
