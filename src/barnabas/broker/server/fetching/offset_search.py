"""Finds offsets by timestamp, in several turns of the event loop if the search is long or needs the disk."""

from __future__ import annotations

from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.replication.partition import Partition
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.storage import ColdRead, LongSearch, OffsetAtTimestamp

#: special timestamp that stands for the largest timestamp in the log
MAX_TIMESTAMP = -3


async def first_since(
    long_work: LongWork, cold_reads: ColdReads, partition: Partition, timestamp: int
) -> OffsetAtTimestamp | None:
    """Return offset and timestamp of the first record at or after `timestamp`; None if there is none.

    Args:
        long_work: runs a long search.
        cold_reads: reads from the disk into memory.
        partition: the partition to search.
        timestamp: time in milliseconds since 1970, or `MAX_TIMESTAMP` for the record with the largest
            timestamp, or another special value of `PartitionLog.offset_for_timestamp`.

    Raises:
        KafkaError: the log cannot be read.
    """
    try:
        return partition.log.offset_for_timestamp(timestamp, may_wait=False)
    except (LongSearch, ColdRead) as search:
        return await find_offset(long_work, cold_reads, partition, timestamp, search)


async def find_offset(
    long_work: LongWork,
    cold_reads: ColdReads,
    partition: Partition,
    timestamp: int,
    search: LongSearch | ColdRead,
) -> OffsetAtTimestamp | None:
    """Continue a search, and return the first record at or after `timestamp`; None if there is none.

    Args:
        long_work: runs the search in a thread.
        cold_reads: reads from the disk into memory.
        partition: the partition to search.
        timestamp: time in milliseconds, or `MAX_TIMESTAMP` for the record with the largest timestamp.
        search: the exception that `PartitionLog.offset_for_timestamp` raised; the search continues from it.

    Raises:
        KafkaError: the log cannot be read.
    """
    start = 0

    def look(may_wait: bool) -> OffsetAtTimestamp | None:
        return partition.log.offset_for_timestamp(timestamp, start, may_wait)

    while True:
        try:
            if isinstance(search, ColdRead):
                return await cold_reads.retry(look, search)
            if timestamp == MAX_TIMESTAMP:
                timestamp = search.max_timestamp
            found = await long_work.run(search.find, timestamp, partition.log.log_start_offset)
            if found is not None:
                return found
            start = search.next_offset
            return look(False)
        except (LongSearch, ColdRead) as following:
            search = following
