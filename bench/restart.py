"""Measures how long a broker with thousands of segments takes to serve again after kill -9.

    python -m bench.restart [--segments 4000] [--segment-bytes 1048576]

The benchmark fills one partition. It kills the broker within a minute, before the broker has stored its
recovery points, and starts it. Then it kills the broker at once and starts it again. Linux only.
"""

from __future__ import annotations

import argparse
import os
import resource
import tempfile
import time
from pathlib import Path

from barnabas.base.system.orphans import environment_that_ends
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.kafka.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.kafka.records import Record, encode_batch
from bench.connection import Connection
from bench.peers import Barnabas

TOPIC = "restart"
BATCH_BYTES = 64 * 1024
RECORDS = 64
PIPELINED = 8


def fill(peer: Barnabas, segments: int, segment_bytes: int) -> int:
    """Fill the segments of one partition. Return the number of records."""
    batches = segments * (segment_bytes // BATCH_BYTES)
    record = os.urandom(BATCH_BYTES // RECORDS - 16)
    with Connection(peer.bootstrap) as connection:
        configs = [CreatableTopicConfig(name="segment.bytes", value=str(segment_bytes))]
        topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, configs=configs)
        (created,) = connection.ask(CreateTopicsRequest(topics=[topic]), CreateTopicsResponse).topics
        assert not created.error_code, created.error_message
        waiting: list[RequestHeader] = []
        for number in range(batches):
            if len(waiting) == PIPELINED:
                _stored(connection.receive(waiting.pop(0), ProduceResponse))
            now_ms = int(time.time() * 1000)
            records = encode_batch([Record(None, b"%08d" % number + record, now_ms)] * RECORDS)
            data = [PartitionProduceData(index=0, records=records)]
            request = ProduceRequest(
                acks=1, timeout_ms=30_000, topic_data=[TopicProduceData(name=TOPIC, partition_data=data)]
            )
            waiting.append(connection.send(request))
        for header in waiting:
            _stored(connection.receive(header, ProduceResponse))
    return batches * RECORDS


def _stored(response: ProduceResponse) -> None:
    (partition,) = response.responses[0].partition_responses
    assert not partition.error_code, f"error {partition.error_code}"


def end_of(peer: Barnabas) -> int:
    """Return the high watermark of the partition."""
    wanted = [FetchTopic(topic=TOPIC, partitions=[FetchPartition(partition=0, fetch_offset=0)])]
    with Connection(peer.bootstrap) as connection:
        answer = connection.ask(FetchRequest(max_bytes=1, topics=wanted), FetchResponse)
    (partition,) = answer.responses[0].partitions
    assert not partition.error_code, f"error {partition.error_code}"
    return partition.high_watermark


def show(what: str, peer: Barnabas, records: int) -> None:
    """Print the time of a start, and check that all records exist."""
    assert end_of(peer) == records
    process = Path("/proc") / str(peer.pid)
    io = dict(line.split(": ") for line in (process / "io").read_text().splitlines())
    usage = peer.usage()
    print(
        f"{what}: ready after {peer.startup_seconds:.2f} s, {usage.cpu_seconds:.2f} s of CPU, "
        f"{int(io['syscr']):,} reads of {int(io['rchar']) / 1e6:,.0f} MB, "
        f"{len(list((process / 'fd').iterdir())):,} open files, {usage.rss / 1e6:.0f} MB",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--segments", type=int, default=4000)
    parser.add_argument("--segment-bytes", type=int, default=1 << 20)
    options = parser.parse_args()
    os.environ.update(environment_that_ends())
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        peer = Barnabas(Path(directory))
        try:
            peer.start()
            began = time.monotonic()
            records = fill(peer, options.segments, options.segment_bytes)
            print(f"filled in {time.monotonic() - began:.1f} s", flush=True)
            show("before the kill", peer, records)
            for number in range(3):
                peer.kill()
                peer.start()
                show(f"start {number + 1} after a kill", peer, records)
            peer.stop()
            peer.start()
            show("start after a clean stop", peer, records)
        finally:
            peer.stop()


if __name__ == "__main__":
    main()
