"""Measures the CPU time for each partition of a large request, from the bytes received to the bytes sent.

    python -m bench.partitions [--partitions 100] [--records 10] [--only produce] [--profile]

A broker runs in this process without sockets, as in `bench.request`. The figures are microseconds, include
the broker's threads, and are the best of several rounds. The benchmark checks that the logs contain all
acknowledged records.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count, repeat
from typing import Any

import uvloop

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.network import SocketNetwork
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.broker import Broker
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.listener import Listener
from barnabas.broker.server.network.session import ClientSession
from barnabas.kafka.protocol.framing import RequestHeader, parse_response
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch
from bench.request import EndlessTurn, frame

ROUNDS = 150
RECORD_BYTES = 100
PRODUCE, FETCH, METADATA, CREATE = 7, 11, 8, 5


class Client(asyncio.Transport):
    """The client's end of a session. It keeps the last reply, and signals its arrival."""

    def __init__(self) -> None:
        super().__init__()
        self.reply = b""
        self._waiting: asyncio.Future[None] | None = None

    def writelines(self, list_of_data: Any) -> None:
        self.reply = b"".join(map(bytes, list_of_data))
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def abort(self) -> None:
        pass

    async def answer(self, session: ClientSession, request: bytes) -> bytes:
        """Return the reply to the frame of a request."""
        self.reply = b""
        self._waiting = None
        session.data_received(request)
        if not self.reply:
            self._waiting = asyncio.get_running_loop().create_future()
            await self._waiting
        return self.reply


class Bench:
    """One broker, and one session with it."""

    def __init__(self, broker: Broker, options: argparse.Namespace) -> None:
        listener = Listener(Endpoint("BENCH", "127.0.0.1", 0), broker.connections, SocketNetwork())
        listener.begin = lambda: broker.dispatcher.serve  # type: ignore[method-assign]
        listener.turns = EndlessTurn(broker.clock.monotonic)
        self.broker = broker
        self.session = ClientSession(listener, 0)
        self.client = Client()
        self.session.connection_made(self.client)
        self.options = options

    async def answer(self, request: Request, version: int) -> Any:
        reply = await self.client.answer(self.session, frame(request, version))
        return parse_response(RequestHeader(request.api_key, version, 1, "bench"), reply[4:])

    async def create(self, topics: Sequence[str], partitions: int) -> None:
        wanted = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1) for name in topics
        ]
        answer = await self.answer(CreateTopicsRequest(topics=wanted, timeout_ms=60_000), CREATE)
        assert not any(topic.error_code for topic in answer.topics), answer
        for name in topics:
            for index in range(partitions):
                self.broker.replicas.find(name, index)

    async def measure(self, what: str, items: int, frames: Iterator[bytes]) -> None:
        """Print the smallest CPU time for each item of the requests."""
        if self.options.only not in what:
            return
        best = float("inf")
        for _ in range(ROUNDS):
            requests = [next(frames) for _ in range(self.options.requests)]
            start = time.process_time()
            for request in requests:
                await self.client.answer(self.session, request)
            best = min(best, (time.process_time() - start) / len(requests))
        print(f"{what}: {best * 1e6:.0f} us, {best * 1e6 / items:.2f} us each of {items}", flush=True)
        if self.options.profile:
            profile = cProfile.Profile()
            requests = [next(frames) for _ in range(self.options.requests)]
            with profile:
                for request in requests:
                    await self.client.answer(self.session, request)
            pstats.Stats(profile).sort_stats("tottime").print_stats(30)


def produce_frames(topic: str, partitions: int, batch: Callable[[int], bytes]) -> Iterator[bytes]:
    for number in count():
        records = batch(number)
        data = [PartitionProduceData(index=index, records=records) for index in range(partitions)]
        topics = [TopicProduceData(name=topic, partition_data=data)]
        yield frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=topics), PRODUCE)


async def produce(bench: Bench) -> None:
    partitions, records = bench.options.partitions, bench.options.records
    await bench.create(["plain", "idempotent"], partitions)
    now_ms = bench.broker.clock.now_ms()
    content = [Record(None, bytes(RECORD_BYTES), now_ms)] * records
    plain = encode_batch(content)

    def idempotent(number: int) -> bytes:
        return encode_batch(content, producer_id=7, producer_epoch=0, base_sequence=number * records)

    for topic, batch in ("plain", lambda number: plain), ("idempotent", idempotent):
        frames = produce_frames(topic, partitions, batch)
        one = await bench.client.answer(bench.session, next(frames))
        answer: Any = parse_response(RequestHeader(ProduceRequest.api_key, PRODUCE, 1, "bench"), one[4:])
        assert not any(each.error_code for each in answer.responses[0].partition_responses), answer
        sent = 1

        def counted(frames: Iterator[bytes] = frames) -> Iterator[bytes]:
            nonlocal sent
            for each in frames:
                sent += 1
                yield each

        await bench.measure(f"produce, {topic}", partitions, counted())
        for index in range(partitions):
            end = bench.broker.replicas.find(topic, index).log.log_end_offset
            assert end == sent * records, (topic, index, end, sent * records)


async def fetch(bench: Bench) -> None:
    for partitions in (100, 1000):
        topic = f"empty-{partitions}"
        await bench.create([topic], partitions)
        wanted = [FetchPartition(partition=index, partition_max_bytes=1 << 20) for index in range(partitions)]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=wanted)]
        )
        encoded = frame(request, FETCH)
        await bench.measure(f"fetch, {partitions} empty", partitions, repeat(encoded))


async def metadata(bench: Bench) -> None:
    topics = bench.options.topics
    for first in range(0, topics, 500):
        await bench.create([f"topic-{number}" for number in range(first, min(first + 500, topics))], 1)
    encoded = frame(MetadataRequest(topics=None), METADATA)
    await bench.measure("metadata of all topics", topics, repeat(encoded))


async def scenario(directory: str, options: argparse.Namespace) -> None:
    config = BrokerConfig(log_dirs=(directory,), listeners=("PLAINTEXT://127.0.0.1:0",))
    broker = Broker(config, Environment.of_system())
    await broker.start()
    bench = Bench(broker, options)
    for part in (produce, fetch, metadata):
        if options.only.startswith(part.__name__) or not options.only:
            await part(bench)
    bench.session.connection_lost(None)
    await broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--partitions", type=int, default=100, help="of a produce")
    parser.add_argument("--records", type=int, default=10, help="of a batch")
    parser.add_argument("--topics", type=int, default=2000, help="of a metadata request")
    parser.add_argument("--requests", type=int, default=3, help="in each of the rounds")
    parser.add_argument(
        "--only", default="", help="the figures whose names contain it: produce, fetch, metadata, ..."
    )
    parser.add_argument("--profile", action="store_true", help="say where it goes, which slows it down")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        uvloop.run(scenario(directory, options))


if __name__ == "__main__":
    main()
