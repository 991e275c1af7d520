"""Measures the cost of testing the page cache before a read, and the time that a cold read blocks its thread.

    python -m bench.cold_reads [--folder FOLDER]

The benchmark reads a log of 256 MB at its end and at random places. It makes each read twice: once as a read
that may wait for the disk, and once as the event loop reads. The figures are microseconds of CPU time. At the
end it drops the log from the page cache, and times cold reads at random places.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from statistics import median
from time import perf_counter, thread_time

from barnabas.base.environment.environment import Environment
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.storage import ColdRead, OpenFiles, PartitionLog
from barnabas.kafka.records import Record, encode_batch

BATCHES = 16_000
BATCH_RECORDS = 16
PAIRS = 9


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.cold_reads", description=__doc__)
    parser.add_argument("--folder", default=".", help="where the log is made, on a disk (%(default)s)")
    environment = Environment.of_system()
    with tempfile.TemporaryDirectory(dir=parser.parse_args().folder) as path:
        directory = LogDirectory.open(
            OpenFiles(environment.filesystem), path, environment, cluster_id="bench", node_id=1
        )
        log = directory.create(TopicPartition("bench", 0), bytes(16), TopicConfig(segment_bytes=64 << 20))
        batch = encode_batch([Record(None, os.urandom(1000), 0) for _ in range(BATCH_RECORDS)])
        for _ in range(BATCHES):
            log.append_as_leader(batch, 0)
        log.advance_high_watermark(log.log_end_offset)
        choose = random.Random(1).randrange
        places = [choose(0, log.log_end_offset * 3 // 4) for _ in range(2000)]
        _compare("at the tail", log, [log.log_end_offset - BATCH_RECORDS] * 20_000, 1 << 20)
        _compare("20 KB anywhere", log, places, 20_000)
        _compare("1 MB anywhere", log, places, 1 << 20)
        log.flush()
        _forget(path)
        waited = [_timed(log, place, may_wait=True) for place in places[:200]]
        _forget(path)
        asked = [_timed(log, place, may_wait=False) for place in places[:200]]
        print(
            f"cold: median {1000 * median(waited):.2f} ms to wait, {1000 * median(asked):.2f} ms to be told"
        )
        directory.close()


def _compare(what: str, log: PartitionLog, offsets: Sequence[int], max_bytes: int) -> None:
    pairs = [
        (_cost(log, offsets, max_bytes, True), _cost(log, offsets, max_bytes, False)) for _ in range(PAIRS)
    ]
    plain, asking = (min(costs) for costs in zip(*pairs, strict=True))
    ratio = median(asking / plain for plain, asking in pairs)
    print(
        f"{what}: {plain:.1f} us, asking first {asking:.1f} us, ratio {ratio:.2f} (median of {PAIRS} pairs)"
    )


def _cost(log: PartitionLog, offsets: Sequence[int], max_bytes: int, may_wait: bool) -> float:
    began = thread_time()
    for offset in offsets:
        log.read(offset, max_bytes, log.high_watermark, True, may_wait)
    return (thread_time() - began) / len(offsets) * 1e6


def _timed(log: PartitionLog, offset: int, *, may_wait: bool) -> float:
    began = perf_counter()
    with suppress(ColdRead):
        log.read(offset, 20_000, log.high_watermark, True, may_wait)
    return perf_counter() - began


def _forget(path: str) -> None:
    """Remove all files below a folder from the page cache."""
    for folder, _, names in os.walk(path):
        for name in names:
            descriptor = os.open(f"{folder}/{name}", os.O_RDONLY)
            try:
                os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(descriptor)


if __name__ == "__main__":
    main()
