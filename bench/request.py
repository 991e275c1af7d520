"""Measures the CPU time of a request in the code of Barnabas, from the bytes received to the bytes to send.

    python -m bench.request [--seconds 2] [--profile | --calls]

A broker runs in this process without sockets. So the figures exclude asyncio and the system calls of the
network. They are microseconds of CPU time on one core, the best of several rounds. The first produces have
the usual shape, which the broker answers from their bytes (ADR 22); those of an old version take the general
path. A step of a transaction is measured until its reply, with the work of other tasks. The calls of a step
include those after the reply, of the markers for example.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from itertools import count, repeat
from statistics import median
from typing import Any

import uvloop

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.network import SocketNetwork
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.broker import Broker
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.listener import Listener
from barnabas.broker.server.network.session import ClientSession
from barnabas.broker.server.network.turns import SLICE, Turns
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.kafka.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch
from bench.calls import Way
from bench.log import cost

TOPIC = "bench"
#: requests that a client has in flight
PIPELINED = 5
#: a version of Produce that only the general path knows
OLD_PRODUCE = 4


class Nowhere(asyncio.Transport):
    """A client that accepts each reply at once. It keeps the last reply, and counts all."""

    replies = 0
    last = b""
    answered: asyncio.Future[None] | None = None

    def writelines(self, list_of_data: Any) -> None:
        self.replies += 1
        self.last = b"".join(list_of_data)
        if self.answered is not None and not self.answered.done():
            self.answered.set_result(None)

    def abort(self) -> None:
        pass


class EndlessTurn(Turns):
    """Lets each request begin, because the benchmark does not end its turn of the event loop."""

    def must_wait(self, resume: Callable[[], None]) -> bool:
        self.end = self.now() + SLICE
        return False


def frame(request: Request, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(RequestHeader(request.api_key, version, 1, "bench"), request)))


class Bench:
    """A broker without sockets, and its only client.

    Args:
        seconds: CPU time to spend on each figure.
        how: what to print: the time of a request, with a profile, or its calls.
    """

    def __init__(self, broker: Broker, seconds: float, how: str) -> None:
        listener = Listener(Endpoint("BENCH", "127.0.0.1", 0), broker.connections, SocketNetwork())
        listener.begin = lambda: broker.dispatcher.serve  # type: ignore[method-assign]
        listener.turns = EndlessTurn(broker.clock.monotonic)
        self.broker = broker
        self.session = ClientSession(listener, 0)
        self.client = Nowhere()
        self.session.connection_made(self.client)
        self._seconds = seconds
        self._how = how

    async def ask(self, request: Request, version: int) -> Any:
        """Return the response to a request."""
        await self._answer(frame(request, version))
        header = RequestHeader(request.api_key, version, 1, "bench")
        return parse_response(header, self.client.last[4:])

    async def _answer(self, received: bytes) -> None:
        self.client.answered = asyncio.get_running_loop().create_future()
        self.session.data_received(received)
        await self.client.answered

    def measure(self, what: str, frames: Iterator[bytes]) -> None:
        """Measure a request that the broker answers at once. `frames` has its bytes, again and again."""
        serve = self.session.data_received
        if self._how == "calls":
            for _ in range(100):
                serve(next(frames))
            received = next(frames)
            way = Way()
            with way:
                serve(received)
            print(f"{what}: {way}\n{way.listing()}")
            return
        print(f"{what}: {cost(lambda _: serve(next(frames)), self._seconds):.1f} us")
        if self._how == "profile":
            profile = cProfile.Profile()
            with profile:
                for _ in range(20_000):
                    serve(next(frames))
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)

    async def measure_steps(self, steps: Mapping[str, bytes]) -> None:
        """Measure requests that follow one another, each until its reply."""
        spent: dict[str, list[float]] = defaultdict(list)
        until = time.process_time() + len(steps) * self._seconds
        rounds = 100 if self._how == "calls" else 1 << 62
        while rounds and time.process_time() < until:
            rounds -= 1
            for what, received in steps.items():
                began = time.process_time()
                await self._answer(received)
                spent[what].append(time.process_time() - began)
                await asyncio.sleep(0)
        for what, received in steps.items():
            if self._how == "calls":
                way = Way()
                with way:
                    await self._answer(received)
                    await asyncio.sleep(0.01)
                print(f"{what}: {way}\n{way.listing()}")
            else:
                print(f"{what}: {median(spent[what]) * 1e6:.1f} us")


async def coordinated(bench: Bench, key_type: int, is_loaded: Callable[[], bool]) -> None:
    """Create the coordinator's topic, and wait until this broker coordinates it."""
    await bench.ask(FindCoordinatorRequest(coordinator_keys=["bench"], key_type=key_type), 4)
    while not is_loaded():
        await asyncio.sleep(0.01)


async def scenario(directory: str, seconds: float, how: str) -> None:
    config = BrokerConfig(log_dirs=(directory,), listeners=("PLAINTEXT://127.0.0.1:0",))
    broker = Broker(config, Environment.of_system())
    await broker.start()
    bench = Bench(broker, seconds, how)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    await bench.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    record = [Record(None, bytes(100), broker.clock.now_ms())]

    def produce_of(number: int, version: int = 7) -> bytes:
        """Return a request; that of an idempotent producer unless `number` is negative."""
        fields: dict[str, Any] = {}
        if number >= 0:
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        records = encode_batch(record, **fields)
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
        return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), version)

    produce = produce_of(-1)
    bench.measure("produce of one record", repeat(produce))
    bench.measure(f"{PIPELINED} of them in one read", repeat(produce * PIPELINED))
    bench.measure("produce of one record, idempotent", map(produce_of, count()))
    bench.measure("produce of one record, general path", repeat(produce_of(-1, OLD_PRODUCE)))
    end = broker.replicas.find(TOPIC, 0).log.log_end_offset
    wanted = FetchPartition(partition=0, fetch_offset=end - 1, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
    bench.measure("fetch of one record", repeat(frame(fetch, 11)))
    committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=end)
    commit = OffsetCommitRequest(
        group_id="bench", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])]
    )
    await coordinated(bench, 0, lambda: broker.groups.has_group("bench") is not None)
    bench.measure("commit of one offset", repeat(frame(commit, 9)))
    await coordinated(bench, 1, lambda: bool(broker.transactions.partitions()))
    await bench.measure_steps(await transaction(bench))
    bench.session.connection_lost(None)
    await broker.stop()


async def transaction(bench: Bench) -> dict[str, bytes]:
    """Return the requests of a transaction by name. The client can send them again and again."""
    init = InitProducerIdRequest(transactional_id="bench", transaction_timeout_ms=60_000)
    while (answer := await bench.ask(init, 3)).error_code:
        await asyncio.sleep(0.01)
    producer_id, epoch = answer.producer_id, answer.producer_epoch
    of_producer = {"transactional_id": "bench", "producer_id": producer_id, "producer_epoch": epoch}
    partitions = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id="bench",
        v3_and_below_producer_id=producer_id,
        v3_and_below_producer_epoch=epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])],
    )
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=1)
    offsets = TxnOffsetCommitRequest(
        group_id="bench", topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=[offset])], **of_producer
    )
    return {
        "AddPartitionsToTxn": frame(partitions, 3),
        "AddOffsetsToTxn": frame(AddOffsetsToTxnRequest(group_id="bench", **of_producer), 3),
        "TxnOffsetCommit": frame(offsets, 3),
        "EndTxn": frame(EndTxnRequest(committed=True, **of_producer), 3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2, help="CPU time to spend on each figure")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--profile", action="store_true", help="say where it goes, which slows it down")
    how.add_argument("--calls", action="store_true", help="list the calls of one request instead")
    options = parser.parse_args()

    chosen = "calls" if options.calls else "profile" if options.profile else "time"
    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        uvloop.run(scenario(directory, options.seconds, chosen))


if __name__ == "__main__":
    main()
