"""A short life of one whole broker in virtual time, whose trace a seed decides: see test_whole_broker.py.

    python -m tests.unit.simulation.whole_broker SEED [LINES]

prints the trace's hash, and its last lines.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import sys
from collections.abc import Sequence
from random import Random
from typing import Any

from simulation.blocking import VirtualThreads
from simulation.clocks import VirtualClock
from simulation.connection import Segment
from simulation.faulty_disk import FaultyDisk
from simulation.network import Host, SimulatedNetwork
from simulation.virtual_time import VirtualProcess, run_virtual

from barnabas.base.environment.environment import Environment
from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import Channel
from barnabas.broker.server.broker import Broker
from barnabas.kafka.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    TopicPartitions,
)
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.end_txn import EndTxnRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from barnabas.kafka.records import Record, all_records, encode_batch

#: seconds: a fourth of a real day, because a broker does something in each second
DAY = 21_600
SETTINGS = {
    "node.id": "1",
    "listeners": "PLAINTEXT://broker:9092",
    "log.dirs": "/a,/b",
    "barnabas.acks.fsync": "true",
    "offsets.topic.num.partitions": "8",
    "transaction.state.log.num.partitions": "8",
    "log.cleaner.backoff.ms": "600000",
    "replica.high.watermark.checkpoint.interval.ms": "600000",
    "log.flush.offset.checkpoint.interval.ms": "600000",
    "log.flush.start.offset.checkpoint.interval.ms": "600000",
    "producer.id.expiration.ms": str(2 * DAY * 1000),
    "transactional.id.expiration.ms": str(3 * DAY * 1000),
    "offsets.retention.minutes": str(4 * DAY // 60),
}
#: their hashes, and so their order in a set, depend on PYTHONHASHSEED
NAMES = [f"topic-{name}" for name in ("a", "b", "c", "d", "e", "f", "g", "h")]
GROUP = "group"
TRANSACTION = "transaction"


class Trace(logging.Handler):
    """A hash of the network's segments, the disk's operations and the log lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def note(self, *what: object) -> None:
        self.lines.append(f"{asyncio.get_running_loop().time():.9f} {' '.join(map(str, what))}")

    def segment(self, source: str, target: str, segment: Segment) -> None:
        told = hashlib.blake2b(segment, digest_size=6).hexdigest() if isinstance(segment, bytes) else segment
        self.note(source, target, told)

    def disk(self, operation: str, path: str) -> None:
        self.note(operation, path)

    def emit(self, record: logging.LogRecord) -> None:
        self.note(record.levelname, record.getMessage())

    @property
    def digest(self) -> str:
        return hashlib.blake2b("\n".join(self.lines).encode(), digest_size=16).hexdigest()


class Machine:
    """The broker's machine. Its disk stays when a process ends."""

    def __init__(self, seed: int, trace: Trace) -> None:
        self._seed = seed
        self._lives = 0
        self._trace = trace
        self._chance = Random(f"{seed} crash")
        self.network = SimulatedNetwork(Random(f"{seed} network"), observe=trace.segment)
        self.disk = FaultyDisk(VirtualClock(asyncio.get_running_loop()))
        self.disk.refuse = trace.disk
        self._process: VirtualProcess
        self._host: Host

    async def start(self) -> None:
        self._lives += 1
        self._process, self._host = VirtualProcess("broker"), self.network.host("broker")
        threads = VirtualThreads(Random(f"{self._seed} threads {self._lives}"))
        environment = Environment(
            clock=VirtualClock(asyncio.get_running_loop(), threads),
            filesystem=self.disk,
            blocking=threads,
            network=self._host,
            random=Random(f"{self._seed} broker {self._lives}"),
        )
        self.broker = Broker(BrokerConfig.from_text(SETTINGS), environment)
        await self._process.run(self.broker.start())

    async def stop(self) -> None:
        await self._process.run(self.broker.stop())
        self._process.kill()
        self._host.kill()

    def crash(self) -> None:
        self._process.kill()
        self.network.power_off("broker")
        self.disk.crash(self._chance)
        self.disk.refuse = self._trace.disk
        self.network.power_on("broker")


class Client:
    """A client that sends requests to the broker in frames."""

    def __init__(self, machine: Machine, seed: int, name: str) -> None:
        self.name = name
        host = machine.network.host(name)
        rng = Random(f"{seed} {name}")
        self._channel = Channel(host, lambda: ("broker", 9092), name="broker", client_id=name, rng=rng)

    async def ask(self, request: Any) -> Any:
        return await self._channel.send(request, timeout_s=60.0)

    async def create(self, names: Sequence[str], partitions: int, **configs: str) -> None:
        wanted = [CreatableTopicConfig(name=name.replace("_", "."), value=v) for name, v in configs.items()]
        topics = [
            CreatableTopic(name=name, num_partitions=partitions, replication_factor=1, configs=wanted)
            for name in names
        ]
        answer = await self.ask(CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        assert [topic.error_code for topic in answer.topics] == [0] * len(names)

    async def ids(self, names: Sequence[str]) -> dict[str, bytes]:
        answer = await self.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names]))
        return {topic.name: topic.topic_id for topic in answer.topics}

    async def produce(
        self, topic: tuple[str, bytes], partition: int, batch: bytes, transactional_id: str | None = None
    ) -> int:
        data = PartitionProduceData(index=partition, records=batch)
        name, topic_id = topic
        answer = await self.ask(
            ProduceRequest(
                acks=-1,
                timeout_ms=30_000,
                transactional_id=transactional_id,
                topic_data=[TopicProduceData(name=name, topic_id=topic_id, partition_data=[data])],
            )
        )
        (result,) = answer.responses[0].partition_responses
        assert result.error_code == 0, result
        offset: int = result.base_offset
        return offset

    async def read(self, topic: tuple[str, bytes], partition: int) -> list[bytes | None]:
        """Return the values of a partition up to its last stable offset, also those
        of aborted transactions.
        """
        name, topic_id = topic
        values: list[bytes | None] = []
        offset, end = await self.offset(name, partition, -2), await self.offset(name, partition, -1)
        while offset < end:
            wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=1 << 20)
            answer = await self.ask(
                FetchRequest(
                    max_wait_ms=500,
                    min_bytes=1,
                    isolation_level=1,
                    topics=[FetchTopic(topic=name, topic_id=topic_id, partitions=[wanted])],
                )
            )
            (data,) = answer.responses[0].partitions
            assert data.error_code == 0, data
            found = [record for record in all_records(data.records) if record.offset >= offset]
            values += [record.value for record in found]
            offset = found[-1].offset + 1 if found else offset + 1  # compaction leaves empty batches
        return values

    async def offset(self, name: str, partition: int, timestamp: int) -> int:
        wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
        topics = [ListOffsetsTopic(name=name, partitions=[wanted])]
        answer = await self.ask(ListOffsetsRequest(topics=topics, isolation_level=1))
        found: int = answer.topics[0].partitions[0].offset
        return found


async def life(seed: int, trace: Trace) -> None:
    """Use every part of a broker for ten virtual days, with one stop and one crash."""
    machine = Machine(seed, trace)
    await machine.start()
    client = Client(machine, seed, "client")
    now_ms = machine.broker.clock.now_ms
    await client.create(NAMES[:6], 2, retention_ms=str(DAY * 1000), segment_ms=str(DAY * 500))
    await client.create(NAMES[6:], 2, cleanup_policy="compact", segment_ms=str(DAY * 500))
    ids = await client.ids(NAMES)

    async def fill(name: str, count: int) -> None:
        worker = Client(machine, seed, f"writer of {name}")
        for number in range(count):
            record = Record(b"key", f"{name} {number}".encode(), now_ms())
            await worker.produce((name, ids[name]), number % 2, encode_batch([record]))

    await asyncio.gather(*(fill(name, 10) for name in NAMES))
    assert await client.read((NAMES[0], ids[NAMES[0]]), 1) == [b"topic-a %d" % n for n in range(1, 10, 2)]
    await join_group(machine, seed)
    for committed in (True, False):
        await transact(client, {name: ids[name] for name in NAMES}, committed, now_ms())
    assert b"True" in await client.read((NAMES[0], ids[NAMES[0]]), 0)

    await asyncio.sleep(2 * DAY)  # segments roll, old ones go, compacted topics are cleaned, producers expire
    await fill(NAMES[0], 2)
    await fill(NAMES[6], 2)
    await asyncio.sleep(DAY)
    assert await client.offset(NAMES[0], 0, -2) > 0
    survivors = await client.read((NAMES[6], ids[NAMES[6]]), 0)
    assert survivors[-1] == b"topic-g 0" and len(survivors) < 6

    await machine.stop()
    await machine.start()
    await fill(NAMES[1], 4)
    machine.crash()
    await asyncio.sleep(1)
    await machine.start()
    again = Client(machine, seed, "client after the crash")
    assert await again.ids(NAMES) == ids
    assert (await again.read((NAMES[1], ids[NAMES[1]]), 0))[-1] == b"topic-b 2"
    assert await committed_offset(again, ids[NAMES[5]]) == 7
    await again.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in NAMES[:4]]))
    await asyncio.sleep(5 * DAY)  # offsets of a group that is gone expire
    assert await committed_offset(again, ids[NAMES[5]]) == -1
    await machine.stop()


async def join_group(machine: Machine, seed: int) -> None:
    """Let three members join a group of the consumer protocol and leave again."""
    members = [Client(machine, seed, f"member {number}") for number in range(3)]
    held: list[int] = []

    async def live(client: Client) -> None:
        await client.ask(FindCoordinatorRequest(coordinator_keys=[GROUP], key_type=0))
        who: dict[str, Any] = {"group_id": GROUP, "member_id": f"id of {client.name}"}
        sent = {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": NAMES, "topic_partitions": []}
        epoch = owned = 0
        for _ in range(12):
            answer = await client.ask(ConsumerGroupHeartbeatRequest(member_epoch=epoch, **who, **sent))
            assert answer.error_code == 0, answer
            epoch, sent = answer.member_epoch, {}
            if answer.assignment is not None:
                assigned = answer.assignment.topic_partitions
                owned = sum(len(topic.partitions) for topic in assigned)
                sent = {
                    "topic_partitions": [
                        TopicPartitions(topic_id=topic.topic_id, partitions=topic.partitions)
                        for topic in assigned
                    ]
                }
            await asyncio.sleep(5)
        held.append(owned)
        await client.ask(ConsumerGroupHeartbeatRequest(member_epoch=-1, **who))

    await asyncio.gather(*map(live, members))
    assert sorted(held) == [5, 5, 6]


async def transact(client: Client, ids: dict[str, bytes], committed: bool, now_ms: int) -> None:
    """Run one transaction over all topics, with an offset of the group."""
    await client.ask(FindCoordinatorRequest(coordinator_keys=[TRANSACTION], key_type=1))
    await asyncio.sleep(1)  # the new coordinator loads what there is
    producer = await client.ask(
        InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000)
    )
    assert producer.error_code == 0, producer
    who = {"producer_id": producer.producer_id, "producer_epoch": producer.producer_epoch}
    for topic in ids.items():
        record = Record(b"key", str(committed).encode(), now_ms)
        batch = encode_batch([record], base_sequence=0, transactional=True, **who)
        await client.produce(topic, 0, batch, TRANSACTION)
    await client.ask(AddOffsetsToTxnRequest(transactional_id=TRANSACTION, group_id=GROUP, **who))
    offset = TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=7 if committed else 8)
    topics = [TxnOffsetCommitRequestTopic(name=NAMES[5], partitions=[offset])]
    answer = await client.ask(
        TxnOffsetCommitRequest(transactional_id=TRANSACTION, group_id=GROUP, topics=topics, **who)
    )
    assert answer.topics[0].partitions[0].error_code == 0
    answer = await client.ask(EndTxnRequest(transactional_id=TRANSACTION, committed=committed, **who))
    assert answer.error_code == 0
    await asyncio.sleep(1)


async def committed_offset(client: Client, topic_id: bytes) -> int:
    """Return the group's offset in the first partition of the transactions' topic."""
    group = OffsetFetchRequestGroup(
        group_id=GROUP,
        topics=[OffsetFetchRequestTopics(name=NAMES[5], topic_id=topic_id, partition_indexes=[0])],
    )
    answer = await client.ask(OffsetFetchRequest(groups=[group]))
    found: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return found


def run(seed: int) -> Trace:
    """Run one life, and return its trace."""
    trace = Trace()
    logger = logging.getLogger("barnabas")
    level = logger.level
    logger.addHandler(trace)
    logger.setLevel(logging.INFO)
    try:
        run_virtual(life(seed, trace))
    finally:
        logger.removeHandler(trace)
        logger.setLevel(level)
    return trace


if __name__ == "__main__":
    told = run(int(sys.argv[1]))
    print(told.digest)
    print("\n".join(told.lines[: int(sys.argv[2])] if sys.argv[2:] else []))
