"""Deletes records at the start of a partition that this broker leads, without a client's request."""

from __future__ import annotations

from barnabas.base.types import Offset, TopicPartition
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.replication.manager import ReplicaManager


async def delete_before(
    replicas: ReplicaManager, logs: LogManager, partition: TopicPartition, start: Offset
) -> None:
    """Delete a partition's records before `start`: store `start` as its log start offset, and apply it.

    Followers apply the new log start offset after their next fetch. Do nothing if the log already has no
    such records.

    Raises:
        KafkaError: this broker does not lead the partition, or lost the leadership meanwhile; `start` is not
            valid; or the disk failed.
    """
    replica = replicas.find(*partition)
    replica.check_leader()
    epoch, log = replica.leader_epoch, replica.log
    log.check_log_start(start)
    if start <= log.log_start_offset:
        return
    await logs.checkpoints.store_log_starts(logs.directory_of(partition), [(log, start)])
    replica.check_leader(epoch)
    log.advance_log_start(start)
