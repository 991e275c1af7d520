"""Measures the cost of an append to the log and of a read from it, beside the bare system call.

    python -m bench.log [--seconds 0.3]

The figures are microseconds of CPU time on one core, the best of several rounds. CPU time is used, not wall
time, so that a busy machine gives the same figures as an idle one.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from barnabas.base.environment.clock import SystemClock
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.environment.randomness import new_topic_id, system_random
from barnabas.base.types import TopicPartition
from barnabas.broker.config import TopicConfig
from barnabas.broker.logs import LogDirectory
from barnabas.broker.storage import OpenFiles, PartitionLog
from barnabas.kafka.records import Record, encode_batch

ROUNDS = 5
BATCHES = ((1, 100), (100, 100), (16, 1000), (1000, 1000))


def cost(action: Callable[[int], object], seconds: float) -> float:
    """Return the CPU time of one call of `action`, in microseconds. `action` gets the number of the call."""
    best = float("inf")
    number = 0
    for _ in range(ROUNDS):
        count = 0
        start = time.process_time()
        while (spent := time.process_time() - start) < seconds / ROUNDS:
            for _ in range(50):
                action(number)
                number += 1
            count += 50
        best = min(best, spent / count)
    return best * 1e6


@contextmanager
def open_directory(path: str) -> Iterator[LogDirectory]:
    directory = LogDirectory.open(
        OpenFiles(OsFileSystem()), path, Environment.of_system(), cluster_id="bench", node_id=1
    )
    yield directory
    directory.close()


def new_log(directory: LogDirectory, name: str) -> PartitionLog:
    return directory.create(TopicPartition(name, 0), new_topic_id(system_random()), TopicConfig())


def bench_batches(directory: LogDirectory, seconds: float) -> None:
    now = SystemClock().now_ms()
    print(f"{'batch':>16} {'append':>8} {'write':>8} {'ours':>8}   {'tail read':>9} {'pread':>8} {'ours':>8}")
    for records, size in BATCHES:
        batch = encode_batch([Record(None, os.urandom(size), now)] * records)
        log = new_log(directory, f"plain-{records}-{size}")
        append = cost(partial(append_one, log, batch), seconds)
        write, pread = bare(directory.path, batch, seconds)
        offset = log.log_end_offset - records
        end = log.log_end_offset
        read = cost(partial(read_one, log, offset, end), seconds)
        print(
            f"{records:>6} x {size:>4} B {append:8.2f} {write:8.2f} {append - write:8.2f}   "
            f"{read:9.2f} {pread:8.2f} {read - pread:8.2f}"
        )
        removal = directory.delete(log.topic_partition)
        assert removal is not None
        removal.run()


def append_one(log: PartitionLog, batch: bytes, _: int) -> None:
    log.append_as_leader(batch, 0)


def read_one(log: PartitionLog, offset: int, end: int, _: int) -> None:
    log.read(offset, 1 << 20, end)


def bare(path: str, batch: bytes, seconds: float) -> tuple[float, float]:
    """Return the CPU times of the system calls alone that write and read the same bytes."""
    fd = os.open(f"{path}/bare", os.O_RDWR | os.O_CREAT)
    view = memoryview(batch)
    chunks: list[bytes | memoryview] = [batch[:16], view[16:]]
    size = len(batch)
    try:
        write = cost(lambda number: os.pwritev(fd, chunks, number * size), seconds)
        return write, cost(lambda _: os.pread(fd, size, 0), seconds)
    finally:
        os.close(fd)
        Path(f"{path}/bare").unlink()


def bench_idempotent(directory: LogDirectory, seconds: float) -> None:
    now = SystemClock().now_ms()
    log = new_log(directory, "idempotent")
    record = [Record(None, os.urandom(100), now)]
    made = [
        encode_batch(record, producer_id=7, producer_epoch=0, base_sequence=number)
        for number in range(50_000)
    ]
    numbers = iter(range(len(made)))
    start = time.process_time()
    for number in numbers:
        log.append_as_leader(made[number], 0)
    spent = (time.process_time() - start) / len(made) * 1e6
    print(f"idempotent append of 1 x 100 B: {spent:.2f}")
    offsets = log.log_end_offset
    read = cost(lambda number: log.read(number * 7919 % (offsets - 100), 16_384, offsets), seconds)
    print(f"read of 16 KiB at a random offset: {read:.2f}")


def bench_many(path: str, count: int) -> None:
    topic_id = new_topic_id(system_random())
    with open_directory(path) as directory:
        start = time.process_time(), time.perf_counter()
        for partition in range(count):
            directory.create(TopicPartition("many", partition), topic_id, TopicConfig())
        show(f"create {count} empty partitions", start)
        start = time.process_time(), time.perf_counter()
    show(f"stop with {count} empty partitions", start)
    with open_directory(path) as directory:
        start = time.process_time(), time.perf_counter()
        for topic_partition, found in directory.found().items():
            directory.adopt(directory.load(topic_partition, found, TopicConfig()))
        show(f"start with {count} empty partitions", start)


def show(what: str, start: tuple[float, float]) -> None:
    cpu, wall = time.process_time() - start[0], time.perf_counter() - start[1]
    print(f"{what}: {cpu * 1000:.1f} ms of CPU, {wall * 1000:.1f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.5, help="CPU time to spend on each figure")
    options = parser.parse_args()
    print(f"microseconds of CPU for one call; a call of nothing: {cost(lambda _: None, 0.1):.3f}")
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as path:
        with open_directory(path + "/one") as directory:
            bench_batches(directory, options.seconds)
            bench_idempotent(directory, options.seconds)
        bench_many(path + "/many", 50)


if __name__ == "__main__":
    main()
