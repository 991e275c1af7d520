"""`python -m bench.codec`: measure decoding and encoding of common messages, beside kio and kafka-python.

The figures are microseconds for each call, the best of many short rounds. The libraries take turns, so that
their ratios hold while the load of the machine changes. The development extras install kio and kafka-python.
"""

from __future__ import annotations

import gc
import io
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from kio.index import load_payload_module
from kio.serial import entity_reader, entity_writer
from kio.static.constants import EntityType

from barnabas.kafka.protocol.codec import decode, encode, encode_chunks
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, encode_response, parse_request
from barnabas.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from barnabas.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.kafka.protocol.schema import Message, Request

ROUNDS = 40
ROUND_SECONDS = 0.005
KAFKA_PYTHON = {
    "ProduceRequest": "producer.produce",
    "ProduceResponse": "producer.produce",
    "FetchRequest": "consumer.fetch",
    "FetchResponse": "consumer.fetch",
    "MetadataResponse": "metadata.metadata",
}


def produce_request(partitions: int, size: int) -> Message:
    data = [PartitionProduceData(index=i, records=bytes(size)) for i in range(partitions)]
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="t" * 10, partition_data=data)]
    )


def produce_response(partitions: int) -> Message:
    data = [PartitionProduceResponse(index=i, base_offset=i) for i in range(partitions)]
    return ProduceResponse(responses=[TopicProduceResponse(name="t" * 10, partition_responses=data)])


def fetch_request(partitions: int) -> Message:
    data = [
        FetchPartition(partition=i, fetch_offset=i, partition_max_bytes=1 << 20) for i in range(partitions)
    ]
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(topic="t" * 10, partitions=data)])


def fetch_response(partitions: int, size: int) -> Message:
    records = bytes(size)
    data = [
        PartitionData(partition_index=i, high_watermark=9, aborted_transactions=None, records=records)
        for i in range(partitions)
    ]
    return FetchResponse(responses=[FetchableTopicResponse(topic="t" * 10, partitions=data)])


def metadata_response(partitions: int) -> Message:
    data = [
        MetadataResponsePartition(
            partition_index=i, leader_id=1, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3]
        )
        for i in range(partitions)
    ]
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=i, host="127.0.0.1", port=9092) for i in range(3)],
        cluster_id="c" * 22,
        topics=[MetadataResponseTopic(name="t" * 10, partitions=data)],
    )


def kio_class(message: Message, version: int) -> Any:
    kind: Any = EntityType.request if isinstance(message, Request) else EntityType.response
    api_key: int = message.api_key  # type: ignore[attr-defined]
    return getattr(load_payload_module(api_key, version, kind), type(message).__name__)


def kafka_python_class(message: Message, version: int) -> Any:
    name = type(message).__name__
    return getattr(import_module(f"kafka.protocol.{KAFKA_PYTHON[name]}"), name)[version]


def parsers(message: Message, version: int) -> dict[str, Callable[[], Any]]:
    """Return a function for each library that decodes the same bytes."""
    encoded = encode(message, version)
    read, theirs = entity_reader(kio_class(message, version)), kafka_python_class(message, version)
    cls = type(message)
    return {
        "barnabas": lambda: decode(cls, version, encoded),
        "kio": lambda: read(encoded, 0),
        "kafka-python": lambda: theirs.decode(encoded),
    }


def writers(message: Message, version: int) -> dict[str, Callable[[], Any]]:
    """Return a function for each library that encodes a message. Barnabas returns the
    list of chunks to send.
    """
    encoded = encode(message, version)
    entity, _ = entity_reader(kio_class(message, version))(encoded, 0)
    write = entity_writer(kio_class(message, version))
    theirs = kafka_python_class(message, version).decode(encoded)
    theirs._header = None  # which it needs to write what it has read
    return {
        "barnabas": lambda: encode_chunks(message, version),
        "kio": lambda: write(io.BytesIO(), entity),
        "kafka-python": lambda: theirs.encode(version=version),
    }


def whole(message: Message, response: Message, version: int) -> dict[str, Callable[[], Any]]:
    """Return functions for the broker's part: decode a frame with its header, and encode the frame of the
    response.
    """
    header = RequestHeader(message.api_key, version, 1, "client")  # type: ignore[attr-defined]
    frame = b"".join(encode_request(header, message))[4:]  # type: ignore[arg-type]

    def serve() -> None:
        parsed, _ = parse_request(frame)
        encode_response(parsed, response)  # type: ignore[arg-type]

    return {"barnabas": serve}


def measure(contenders: dict[str, Callable[[], Any]]) -> dict[str, float]:
    """Return the microseconds of one call, for each library."""
    calls = {}
    for name, call in contenders.items():
        call()  # compiles
        began = time.perf_counter()
        call()
        calls[name] = max(1, int(ROUND_SECONDS / (time.perf_counter() - began)))
    rounds: dict[str, list[float]] = {name: [] for name in contenders}
    for _ in range(ROUNDS):
        for name, call in contenders.items():
            began = time.perf_counter()
            for _ in range(calls[name]):
                call()
            rounds[name].append((time.perf_counter() - began) / calls[name] * 1e6)
    return {name: min(times) for name, times in rounds.items()}


CASES: dict[str, Callable[[], dict[str, Callable[[], Any]]]] = {
    "parse Produce v9, 1 partition of 16 KB": lambda: parsers(produce_request(1, 16384), 9),
    "parse Produce v9, 100 partitions": lambda: parsers(produce_request(100, 100), 9),
    "parse Fetch v12, 1 partition": lambda: parsers(fetch_request(1), 12),
    "parse Fetch v12, 100 partitions": lambda: parsers(fetch_request(100), 12),
    "write ProduceResponse v9, 1 partition": lambda: writers(produce_response(1), 9),
    "write ProduceResponse v9, 100 partitions": lambda: writers(produce_response(100), 9),
    "write FetchResponse v12, 1 MB": lambda: writers(fetch_response(1, 1 << 20), 12),
    "write FetchResponse v12, 100 partitions of 1 KB": lambda: writers(fetch_response(100, 1024), 12),
    "write Metadata v12, 1000 partitions": lambda: writers(metadata_response(1000), 12),
    "serve Produce v9, 1 partition": lambda: whole(produce_request(1, 1024), produce_response(1), 9),
    "serve Fetch v12, 1 partition": lambda: whole(fetch_request(1), fetch_response(1, 1 << 20), 12),
}


def main() -> None:
    gc.disable()  # as timeit does: collections belong to the heap of the process, not to a codec
    print(f"{'microseconds a call':<50}{'barnabas':>12}{'kio':>12}{'kafka-python':>14}")
    for title, case in CASES.items():
        times = measure(case())
        row = "".join(f"{times[n]:>{w}.1f}" if n in times else f"{'':>{w}}" for n, w in
                      (("barnabas", 12), ("kio", 12), ("kafka-python", 14)))  # fmt: skip
        print(f"{title:<50}{row}", flush=True)


if __name__ == "__main__":
    main()
