"""Measures the CPU time of a request in the code of Barnabas, from the bytes received to the bytes to send.

    python -m bench.request [--seconds 2] [--profile | --calls]

A broker runs in this process without sockets. So the figures exclude asyncio and the system calls of the
network. They are microseconds of CPU time on one core, the best of several rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import pstats
import tempfile
from collections.abc import Callable
from itertools import count
from typing import Any

import uvloop

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.network import SocketNetwork
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.broker import Broker
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.listener import Listener
from barnabas.broker.server.network.session import ClientSession
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch
from bench.calls import Way
from bench.log import cost

TOPIC = "bench"
#: requests that a client has in flight
PIPELINED = 5


class Nowhere(asyncio.Transport):
    """A client that accepts each reply at once and only counts it."""

    replies = 0

    def writelines(self, list_of_data: Any) -> None:
        self.replies += 1

    def abort(self) -> None:
        pass


def frame(request: Request, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(RequestHeader(request.api_key, version, 1, "bench"), request)))


async def loaded_groups(broker: Broker, session: ClientSession, client: Nowhere) -> None:
    """Create the internal topic of the groups, and wait until this broker has loaded it."""
    replies = client.replies
    session.data_received(frame(FindCoordinatorRequest(coordinator_keys=["bench"]), 4))
    while client.replies == replies or broker.groups.has_group("bench") is None:
        await asyncio.sleep(0.01)


async def scenario(directory: str, measure: Callable[[str, Callable[[], None]], None]) -> None:
    config = BrokerConfig(log_dirs=(directory,), listeners=("PLAINTEXT://127.0.0.1:0",))
    broker = Broker(config, Environment.of_system())
    await broker.start()
    listener = Listener(Endpoint("BENCH", "127.0.0.1", 0), broker.connections, SocketNetwork())
    listener.begin = lambda: broker.dispatcher.serve  # type: ignore[method-assign]
    session = ClientSession(listener, 0)
    client = Nowhere()
    session.connection_made(client)
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1)
    session.data_received(frame(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5))
    while not client.replies:
        await asyncio.sleep(0.01)
    record = [Record(None, bytes(100), broker.clock.now_ms())]

    def produce_of(number: int) -> bytes:
        """Return the request with this sequence number of an idempotent producer; below 0, of a producer
        without an id.
        """
        fields: dict[str, Any] = {}
        if number >= 0:
            fields = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number}
        records = encode_batch(record, **fields)
        data = TopicProduceData(name=TOPIC, partition_data=[PartitionProduceData(index=0, records=records)])
        return frame(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 7)

    produce = produce_of(-1)
    measure("produce of one record", lambda: session.data_received(produce))
    together = produce * PIPELINED
    measure(f"{PIPELINED} of them in one read", lambda: session.data_received(together))
    idempotent = map(produce_of, count())
    measure("produce of one record, idempotent", lambda: session.data_received(next(idempotent)))
    end = broker.replicas.find(TOPIC, 0).log.log_end_offset
    wanted = FetchPartition(partition=0, fetch_offset=end - 1, partition_max_bytes=1 << 20)
    fetch = FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchTopic(topic=TOPIC, partitions=[wanted])])
    frame_of_fetch = frame(fetch, 11)
    measure("fetch of one record", lambda: session.data_received(frame_of_fetch))
    committed = OffsetCommitRequestPartition(partition_index=0, committed_offset=end)
    commit = OffsetCommitRequest(
        group_id="bench", topics=[OffsetCommitRequestTopic(name=TOPIC, partitions=[committed])]
    )
    frame_of_commit = frame(commit, 9)
    await loaded_groups(broker, session, client)
    measure("commit of one offset", lambda: session.data_received(frame_of_commit))
    session.connection_lost(None)
    await broker.stop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--seconds", type=float, default=2, help="CPU time to spend on each figure")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--profile", action="store_true", help="say where it goes, which slows it down")
    how.add_argument("--calls", action="store_true", help="list the calls of one request instead")
    options = parser.parse_args()

    def measure(what: str, serve: Callable[[], None]) -> None:
        if options.calls:
            for _ in range(100):
                serve()
            way = Way(serve)
            print(f"{what}: {way}\n{way.listing()}")
            return
        print(f"{what}: {cost(lambda _: serve(), options.seconds):.1f} us")
        if options.profile:
            profile = cProfile.Profile()
            with profile:
                for _ in range(20_000):
                    serve()
            pstats.Stats(profile).sort_stats("tottime").print_stats(25)

    with tempfile.TemporaryDirectory(prefix="barnabas-bench-") as directory:
        uvloop.run(scenario(directory, measure))


if __name__ == "__main__":
    main()
