"""Random walks of plain clients: produces, fetch sessions, offsets by time, and deleted records."""

from __future__ import annotations

import time
from typing import Any

from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, batches, encode_batch
from barnabas.kafka.records.compression import Compression

NOW = int(time.time() * 1000)
DAY = 86_400_000
#: more than all records: brokers may serve partitions in different orders
LIMIT = 1 << 20
#: two topics with their partitions and settings
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "t": (3, {}),
    "u": (2, {"index_interval_bytes": "200", "message_timestamp_after_max_ms": str(DAY)}),
}


class DataWalk:
    """One producer and one consumer with a fetch session."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random
        for topic, (partitions, config) in TOPICS.items():
            pair.each(lambda wire, t=topic, p=partitions, s=config: wire.topic(t, p, **s))
        self.ends = {(topic, p): 0 for topic, (count, _) in TOPICS.items() for p in range(count)}
        #: the fetch session of both brokers and its next epoch
        self.sessions, self.epoch = [0, 0], 0

    def run(self, steps: int) -> None:
        work = [self.produce, self.fetch, self.list_offsets, self.delete, self.epochs]
        for _ in range(steps):
            self.random.choices(work, [8, 8, 4, 0.7, 0.7])[0]()

    def _place(self) -> tuple[str, int]:
        if self.random.random() < 0.03:
            return "t", 9
        return self.random.choice(list(self.ends))

    def produce(self) -> None:
        rng = self.random
        topic, partition = self._place()
        count = rng.choice((1, 1, 2, 5, 30))
        times = [NOW + rng.choice((0, 0, rng.randint(-DAY, DAY), rng.randint(-3, 3))) for _ in range(count)]
        if rng.random() < 0.03:
            times[-1] = NOW + rng.choice((2 * DAY, -30 * DAY))
        records = [
            Record(rng.choice((None, b"k")), b"v" * rng.choice((0, 3, 200, 2_000)), at) for at in times
        ]
        codec, version = rng.choice(list(Compression)), rng.choice((3, 8, 9, 12, 13))
        acks = rng.choice((1, -1))
        batch = encode_batch(records, compression=codec)
        dice = rng.random()
        if dice < 0.03:
            batch = batch[:-1] + bytes([batch[-1] ^ 1])
        elif dice < 0.05:
            batch = batch[: rng.randint(0, len(batch) - 1)]
        elif dice < 0.07:
            batch += batch

        def make(wire: Wire, _: int) -> Request:
            name = wire.name(topic)
            data = [PartitionProduceData(index=partition, records=batch)]
            topics = [TopicProduceData(name=name, topic_id=wire.topic_id(name), partition_data=data)]
            return ProduceRequest(acks=acks, timeout_ms=5000, topic_data=topics)

        told = f"produce v{version} {count} of {codec!r} to {topic}-{partition}, times {times[:3]}"
        answer, _ = self.pair.ask(make, told, version=version)
        if answer and not answer.responses[0].partition_responses[0].error_code:
            self.ends[topic, partition] += count

    def fetch(self) -> None:
        rng = self.random
        is_new = not self.sessions[0] or rng.random() < 0.15
        epoch = 0 if is_new else rng.choices((self.epoch, self.epoch + 1, -1), (30, 1, 1))[0]
        if rng.random() < 0.2:
            epoch, is_new = -1, True
        places = list(self.ends) if is_new else [place for place in self.ends if rng.random() < 0.3]
        if rng.random() < 0.05:
            places.append(("t", 9))
        wanted: dict[str, list[FetchPartition]] = {}
        for topic, partition in places:
            end = self.ends.get((topic, partition), 0)
            offset = rng.choices((rng.randint(0, end), end, end + 1, -1), (10, 5, 0.3, 0.2))[0]
            leader_epoch = rng.choices((-1, 0, 1), (10, 5, 0.3))[0]
            wanted.setdefault(topic, []).append(
                FetchPartition(
                    partition=partition,
                    fetch_offset=offset,
                    partition_max_bytes=LIMIT,
                    current_leader_epoch=leader_epoch,
                )
            )
        forgotten = [] if is_new or rng.random() < 0.9 else [rng.choice(list(self.ends))]
        isolation, version = rng.randrange(2), rng.choice((7, 11, 12, 13, 17))
        numbers = [0 if is_new else each for each in self.sessions]

        def make(wire: Wire, number: int) -> Request:
            names = {topic: (wire.name(topic), wire.topic_id(wire.name(topic))) for topic in TOPICS}
            topics = [
                FetchTopic(topic=names[topic][0], topic_id=names[topic][1], partitions=parts)
                for topic, parts in wanted.items()
            ]
            gone = [
                ForgottenTopic(topic=names[topic][0], topic_id=names[topic][1], partitions=[partition])
                for topic, partition in forgotten
            ]
            return FetchRequest(
                replica_id=-1, max_wait_ms=20, min_bytes=1, max_bytes=LIMIT, isolation_level=isolation,
                session_id=numbers[number], session_epoch=epoch, topics=topics, forgotten_topics_data=gone,
            )  # fmt: skip

        told = f"fetch v{version} session {numbers} epoch {epoch}: {wanted} forget {forgotten}"
        mine, theirs = self.pair.ask(make, told, whole_batches, version=version)
        if epoch == -1 or mine.error_code:
            self.sessions, self.epoch = [0, 0], 0
        elif is_new:
            self.sessions, self.epoch = [mine.session_id, theirs.session_id], 1
        else:
            self.epoch = epoch + 1
        # versions by name and by id do not share a session
        if rng.random() < 0.1:
            self.sessions = [0, 0]

    def list_offsets(self) -> None:
        rng = self.random
        topic, partition = self._place()
        near, far = NOW + rng.randint(-3, 3), NOW + rng.randint(-DAY, DAY)
        # of -3, the largest timestamp, Kafka remembers a record that was deleted
        at = rng.choice((-1, -2, -4, -5, NOW, near, far, NOW + 3 * DAY))
        version = rng.choice((1, 3, 5, 7, 8, 9, 10))
        wanted = [
            ListOffsetsPartition(
                partition_index=partition, timestamp=at, current_leader_epoch=rng.choice((-1, -1, -1, 0, 1))
            )
        ]
        self.pair.ask(
            lambda wire, _: ListOffsetsRequest(
                replica_id=-1,
                topics=[ListOffsetsTopic(name=wire.name(topic), partitions=wanted)],
                timeout_ms=1000,
            ),
            f"list offsets v{version} {topic}-{partition} at {at}, epoch {wanted[0].current_leader_epoch}",
            version=version,
        )

    def delete(self) -> None:
        rng = self.random
        topic, partition = self._place()
        end = self.ends.get((topic, partition), 0)
        offset = rng.choices((rng.randint(0, end), -1, end + 1, -2), (10, 0.5, 1, 0.5))[0]
        wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        self.pair.ask(
            lambda wire, _: DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=wire.name(topic), partitions=wanted)], timeout_ms=5000
            ),
            f"delete {topic}-{partition} before {offset}",
        )

    def epochs(self) -> None:
        rng = self.random
        topic, partition = self._place()
        wanted = [
            OffsetForLeaderPartition(
                partition=partition,
                current_leader_epoch=rng.choice((-1, 0, 1)),
                leader_epoch=rng.choice((-1, 0, 0, 1, 5)),
            )
        ]
        self.pair.ask(
            lambda wire, _: OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=wire.name(topic), partitions=wanted)]
            ),
            f"offset for leader epoch {topic}-{partition} {wanted}",
        )


def whole_batches(answer: Any) -> Any:
    """Return the answer with its partitions by name, and with the offsets of whole batches for all bytes."""
    if answer is None:
        return None
    found = {}
    for topic in answer.pop("responses"):
        for partition in topic["partitions"]:
            partition["aborted_transactions"] = partition.get("aborted_transactions") or []
            records = partition["records"] or b""
            partition["records"] = [
                (h.base_offset, h.last_offset, h.max_timestamp) for _, h in batches(records)
            ]
            found[f"{topic['topic'] or topic['topic_id']}-{partition['partition_index']}"] = partition
    return {**answer, "partitions": found, "which": sorted(found)}
