"""Random walks of idempotent and transactional producers: sequences, epochs, and the records of readers."""

from __future__ import annotations

import time

from tests.compat.scenarios import transactions as txn
from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch

PARTITIONS = 2
IDS = 2


class TransactionWalk:
    """Producers with transactional ids, and one without, that write to one topic.

    The first id uses version 1 of transactions, the second one version 2.
    """

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random
        pair.each(lambda wire: wire.topic("t", PARTITIONS))
        self.ids = [f"x{number}" for number in range(IDS)]
        for name in self.ids:
            pair.each(lambda wire, name=name: txn.coordinated(wire, wire.name(name)))
        #: the last producer id and epoch of each transactional id, for both brokers
        self.held: dict[str | None, list[tuple[int, int]]] = {}
        #: earlier producers ids and epochs
        self.former: dict[str | None, list[list[tuple[int, int]]]] = {name: [] for name in [*self.ids, None]}
        #: the next sequence by id, epoch and partition, as both brokers have it
        self.sequences: dict[tuple[str | None, int, int], int] = {}
        for name in [*self.ids, None]:
            self.init(name, fresh=True)

    def run(self, steps: int) -> None:
        work = [self.produce, self.add, self.end, self.offsets, self.init_any, self.look]
        weights = [8, 3, 4, 1, 0.7, 4]
        for _ in range(steps):
            self.random.choices(work, weights)[0]()
            for name in self.ids:
                self.pair.each(lambda wire, name=name: txn.settled(wire, wire.name(name)))

    def _name(self, wire: Wire, name: str | None) -> str | None:
        return None if name is None else wire.name(name)

    def _version(self, name: str | None, first: tuple[int, ...], second: tuple[int, ...]) -> int:
        """Return a version of a request that the producer's version of transactions uses (KIP-890)."""
        return self.random.choice(first if name == self.ids[0] else second if name else (*first, *second))

    def init_any(self) -> None:
        self.init(self.random.choice([*self.ids, None]))

    def init(self, name: str | None, fresh: bool = False) -> None:
        choice = 0 if fresh or name is None else self.random.choice((0, 1, 1, 2))
        held = self._some(name) if choice == 2 else self.held.get(name)
        timeout = 60_000 if fresh else self.random.choice((60_000, 60_000, 0, -1, 2_000_000_000))

        def make(wire: Wire, number: int) -> Request:
            return txn.init(self._name(wire, name), held[number] if choice and held else (-1, -1), timeout)

        mine, theirs = self.pair.ask(
            make, f"init {name}, held {choice} {held and held[0][1]}, timeout {timeout}"
        )
        if mine.error_code == 0:
            if name in self.held:
                self.former[name].append(self.held[name])
            self.held[name] = [(each.producer_id, each.producer_epoch) for each in (mine, theirs)]

    def _some(self, name: str | None) -> list[tuple[int, int]]:
        """Return the id and epoch of a producer for both brokers: mostly the last ones."""
        rng, held = self.random, self.held[name]
        dice = rng.random()
        if dice < 0.85:
            return held
        if dice < 0.92 and self.former[name]:
            return rng.choice(self.former[name])
        if dice < 0.96:
            by = rng.choice((-1, 1))
            return [(each[0], max(0, each[1] + by)) for each in held]
        return [txn.NOBODY, txn.NOBODY]

    def produce(self) -> None:
        rng = self.random
        name = rng.choice([*self.ids, None])
        held = self._some(name)
        if held[0][1] > self.held[name][0][1]:  # Kafka remembers the sequence of a batch that it then refuses
            held = self.held[name]
        partition = rng.randrange(PARTITIONS) if rng.random() < 0.97 else 9
        is_transactional = (name is not None) if rng.random() < 0.95 else name is None
        count = rng.choice((1, 1, 2, 5))
        key = (name, held[0][1], partition)
        expected = self.sequences.get(key, 0)
        sequence = rng.choices(
            (expected, max(0, expected - rng.randint(1, 12)), expected + rng.randint(1, 3), 0), (20, 2, 1, 1)
        )[0]
        # Kafka remembers the lowest sequence that it refused in a transaction.
        if name == self.ids[0]:
            sequence, is_transactional = expected, True
        elif held[0] == txn.NOBODY:
            sequence = 0
        now = int(time.time() * 1000)
        records = [Record(b"k", b"v", now + each) for each in range(count)]
        version = self._version(name, (9, 11), (12, 13))

        def make(wire: Wire, number: int) -> ProduceRequest:
            batch = encode_batch(
                records,
                producer_id=held[number][0],
                producer_epoch=held[number][1],
                base_sequence=sequence,
                transactional=is_transactional,
            )
            topic = wire.name("t")
            data = [PartitionProduceData(index=partition, records=batch)]
            topics = [TopicProduceData(name=topic, topic_id=wire.topic_id(topic), partition_data=data)]
            return ProduceRequest(
                transactional_id=self._name(wire, name), acks=-1, timeout_ms=5000, topic_data=topics
            )

        told = (
            f"produce v{version} {name} {_told(held)} to {partition}: {count} from sequence {sequence} "
            f"(expected {expected}), transactional {is_transactional}"
        )
        answer, _ = self.pair.ask(make, told, version=version)
        if (
            answer is not None
            and answer.responses[0].partition_responses[0].error_code == 0
            and sequence == expected
        ):
            self.sequences[key] = sequence + count

    def add(self) -> None:
        rng = self.random
        name = rng.choice(self.ids[:1] * 20 + self.ids)
        held = self._some(name)
        partitions = rng.sample(range(PARTITIONS), rng.randint(1, PARTITIONS))
        if rng.random() < 0.03:
            partitions.append(9)
        version = rng.choice((2, 3))
        self.pair.ask(
            lambda wire, number: txn.add(wire.name(name), held[number], wire.name("t"), *partitions),
            f"add v{version} {partitions} by {name} {_told(held)}",
            version=version,
        )

    def end(self) -> None:
        rng = self.random
        name = rng.choice(self.ids)
        held, commit, version = self._some(name), rng.random() < 0.6, self._version(name, (3, 4), (5,))
        if held[0][1] < self.held[name][0][1]:  # a late commit of an aborted transaction: KAFKA-20785
            commit = False
        mine, theirs = self.pair.ask(
            lambda wire, number: txn.end(wire.name(name), held[number], commit),
            f"end v{version} commit {commit} by {name} {_told(held)}",
            version=version,
        )
        if version == 5 and mine.error_code == 0 and mine.producer_id >= 0:
            self.former[name].append(self.held[name])
            self.held[name] = [(each.producer_id, each.producer_epoch) for each in (mine, theirs)]

    def offsets(self) -> None:
        rng = self.random
        name = rng.choice(self.ids)
        held, offset, version = self._some(name), rng.randint(0, 50), self._version(name, (3, 4), (5,))
        self.pair.ask(
            lambda wire, number: txn.offsets(wire, wire.name(name), held[number], wire.name("t"), offset),
            f"offsets v{version} {offset} by {name} {_told(held)}",
            version=version,
        )

    def look(self) -> None:
        rng, partition = self.random, self.random.randrange(PARTITIONS)
        isolation = rng.randrange(2)
        kind = rng.randrange(5)
        if kind == 0:
            name = rng.choice(self.ids)
            self.pair.ask(lambda wire, _: txn.describe(wire.name(name)), f"describe {name}")
        elif kind == 1:
            self.pair.ask(lambda wire, _: txn.committed(wire, wire.name("t")), "committed", version=8)
        elif kind == 2:
            wanted = [ListOffsetsPartition(partition_index=partition, timestamp=rng.choice((-1, -2, -3)))]
            self.pair.ask(
                lambda wire, _: ListOffsetsRequest(
                    replica_id=-1,
                    isolation_level=isolation,
                    topics=[ListOffsetsTopic(name=wire.name("t"), partitions=wanted)],
                ),
                f"list offsets {isolation} {wanted}",
                shape=_without_times,
            )
        else:
            self.pair.ask(
                lambda wire, _: txn.fetch(wire, wire.name("t"), isolation), f"fetch {isolation}", version=13
            )


def _told(held: list[tuple[int, int]]) -> str:
    return f"id {held[0][0]} and {held[1][0]}, epoch {held[0][1]} and {held[1][1]}"


def _without_times(answer):
    for topic in answer["topics"]:
        for partition in topic["partitions"]:
            partition["timestamp"] = min(partition["timestamp"], 0)
    return answer
