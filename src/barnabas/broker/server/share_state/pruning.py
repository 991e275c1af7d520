"""Deletion of the records at the start of a log that this broker leads, by the broker itself."""

from __future__ import annotations

from barnabas.base.types import Offset, TopicPartition
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.replication.manager import ReplicaManager


async def delete_before(
    replicas: ReplicaManager, logs: LogManager, partition: TopicPartition, start: Offset
) -> None:
    """Move the log start offset, as DeleteRecords does; followers move theirs with their next fetch.

    Raises:
        KafkaError: this broker does not lead the partition (any more), or could not store the new start.
    """
    replica = replicas.find(*partition)
    replica.check_leader()
    epoch, log = replica.leader_epoch, replica.log
    log.check_log_start(start)
    if start <= log.log_start_offset:
        return
    await logs.store_log_starts(logs.directory_of(partition), [(log, start)])
    replica.check_leader(epoch)
    log.advance_log_start(start)
