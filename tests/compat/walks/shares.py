"""Random walks of the members of a share group: fetches, acknowledgements and sessions (KIP-932)."""

from __future__ import annotations

import time
from typing import Any, TypeAlias

from tests.compat.scenarios.share_groups import beat
from tests.compat.walks.pair import Pair
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.kafka.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ForgottenTopic,
    ShareFetchRequest,
)
from barnabas.kafka.protocol.schema import Struct
from barnabas.kafka.records import Record, batches, encode_batch

T0 = int(time.time() * 1000)
PARTITIONS = 1
MEMBERS = 3
GROUP_RESOURCE = 32
RELEASE, RENEW = 2, 4
#: how often a record is delivered at most
DELIVERIES = 5

#: acknowledgements with their partitions
Acknowledgements: TypeAlias = list[tuple[int, AcknowledgementBatch]]


class ShareWalk:
    """Members of one share group over one topic."""

    def __init__(self, pair: Pair) -> None:
        self.pair, self.random = pair, pair.random
        pair.each(lambda wire: wire.topic("t", PARTITIONS))
        pair.each(self._reset_to_earliest)
        self.members = [f"member-{number}-{pair.random.random()}" for number in range(MEMBERS)]
        pair.each(self._join)
        self.ends = [0] * PARTITIONS
        #: the next epoch of each member's session, None without a session
        self.epochs: list[int | None] = [None] * MEMBERS
        #: the log start offset of each partition, and the offsets at which its batches begin or end
        self.log_starts = [0] * PARTITIONS
        self.bounds = [[0] for _ in range(PARTITIONS)]
        #: the offset after the last one of a partition that a member has acquired
        self.acquired_ends = [0] * PARTITIONS
        #: offsets of a partition that the group may have finished
        self.finished: set[tuple[int, int]] = set()
        #: whether Kafka's share partition may not know the log start yet: a fetch is then empty, once
        self.is_kafka_late = False
        #: members whose session has forgotten partitions: Kafka does not release their records at its end
        self.forgetful: set[int] = set()
        #: who has acquired an offset of a partition
        self.held: dict[tuple[int, int], int] = {}

    def _join(self, wire: Wire) -> None:
        for member in self.members:
            answer = wire.ask(beat(wire, member, 0, "t"))
            for _ in range(100):
                assert not answer.error_code, answer
                if answer.assignment is not None and answer.assignment.topic_partitions:
                    break
                time.sleep(0.1)
                answer = wire.ask(beat(wire, member, answer.member_epoch, "t"))

    def _reset_to_earliest(self, wire: Wire) -> list[Any]:
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=wire.name("g"), configs=[config]
        )
        answer = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer
        return []

    def run(self, steps: int) -> None:
        for _ in range(4):
            self.produce()
        for member in range(MEMBERS):
            self._fetch(member, 0, list(range(PARTITIONS)), [], [], wait=3000)
        work = [
            self.produce,
            self.fetch,
            self.fetch,
            self.fetch,
            self.acknowledge,
            self.acknowledge,
            self.acknowledge,
            self.delete,
        ]
        weights = [2, 3, 3, 3, 3, 3, 3, 0.3]
        for _ in range(steps):
            self.random.choices(work, weights)[0]()

    # what is sent

    def produce(self) -> None:
        partition, count = self.random.randrange(PARTITIONS), self.random.choice((1, 1, 2, 5, 10))
        values = [Record(b"k", b"v" * self.random.choice((1, 10, 300)), T0 + n) for n in range(count)]
        batch = encode_batch(values)

        def make(wire: Wire, _: int) -> ProduceRequest:
            data = [PartitionProduceData(index=partition, records=batch)]
            topics = [
                TopicProduceData(
                    name=wire.name("t"), topic_id=wire.topic_id(wire.name("t")), partition_data=data
                )
            ]
            return ProduceRequest(acks=-1, timeout_ms=5000, topic_data=topics)

        self.pair.ask(make, f"produce {count} to {partition}, offset {self.ends[partition]}")
        self.ends[partition] += count
        self.bounds[partition].append(self.ends[partition])

    def delete(self) -> None:
        """Delete whole batches: of a batch that is deleted in part, Kafka can deliver deleted records."""
        partition = self.random.randrange(PARTITIONS)
        offset = self.random.choice(self.bounds[partition])
        wanted = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        self.pair.ask(
            lambda wire, _: DeleteRecordsRequest(
                topics=[DeleteRecordsTopic(name=wire.name("t"), partitions=wanted)], timeout_ms=5000
            ),
            f"delete records of {partition} before {offset}",
        )
        self.is_kafka_late |= offset > self.log_starts[partition]
        self.log_starts[partition] = max(self.log_starts[partition], offset)
        time.sleep(0.3)
        for place in [place for place in self.held if place[0] == partition and place[1] < offset]:
            del self.held[place]

    def _epoch(self, member: int) -> int:
        known = self.epochs[member]
        usual = 0 if known is None else known
        epoch = self.random.choices((usual, 0, -1, usual + 1, 1, 5), (20, 1, 1, 0.5, 0.5, 0.5))[0]
        return usual if epoch == -1 and member in self.forgetful else epoch

    def fetch(self) -> None:
        member = self.random.randrange(MEMBERS)
        epoch = self._epoch(member)
        partitions = (
            list(range(PARTITIONS))
            if epoch == 0
            else [p for p in range(PARTITIONS) if self.random.random() < 0.2]
        )
        forgotten = [
            p for p in range(PARTITIONS) if epoch > 0 and p not in partitions and self.random.random() < 0.1
        ]
        if forgotten:
            self.forgetful.add(member)
        acks = self._acknowledgements(member, fetching=True) if self.random.random() < 0.4 else []
        self._fetch(member, epoch, partitions, forgotten, acks)

    def _fetch(
        self, member: int, epoch: int, partitions: list[int], forgotten: list[int], acks, wait: int = 0
    ) -> None:
        choice = self.random.choice
        wait = wait or choice((0, 30, 200))
        settings = {
            "max_wait_ms": wait,
            "min_bytes": choice((0, 1, 1)),
            **choice(
                ({"max_records": choice((1, 2, 3, 5, 10)), "share_acquire_mode": 1}, {"max_records": 500})
            ),
            "batch_size": choice((1, 2, 5, 500)),
            "max_bytes": 1 << 20,
        }
        renews = any(kind == RENEW for _, batch in acks for kind in batch.acknowledge_types)
        settings["is_renew_ack"] = renews if self.random.random() < 0.9 else not renews
        if settings["is_renew_ack"]:
            settings.update(max_records=0, max_bytes=0, min_bytes=0, max_wait_ms=0)
        by_partition: dict[int, list[AcknowledgementBatch]] = {p: [] for p in partitions}
        for partition, batch in acks:
            by_partition.setdefault(partition, []).append(batch)

        def make(wire: Wire, _: int) -> ShareFetchRequest:
            topic_id = wire.topic_id(wire.name("t"))
            wanted = [
                FetchPartition(partition_index=p, acknowledgement_batches=a) for p, a in by_partition.items()
            ]
            return ShareFetchRequest(
                group_id=wire.name("g"),
                member_id=self.members[member],
                share_session_epoch=epoch,
                topics=[FetchTopic(topic_id=topic_id, partitions=wanted)] if wanted else [],
                forgotten_topics_data=[ForgottenTopic(topic_id=topic_id, partitions=forgotten)]
                if forgotten
                else [],
                **settings,
            )

        told = f"fetch of {member}, epoch {epoch}: {partitions}, not {forgotten}, {_told(acks)}, {settings}"
        answer, theirs = (wire.ask(make(wire, number)) for number, wire in enumerate(self.pair.wires))
        if self.is_kafka_late and _has_records(answer) and not _has_records(theirs):
            self.pair.note(f"{told}: empty in Kafka")
            self.is_kafka_late = False
            by_partition, forgotten, epoch = {}, [], epoch + 1
            theirs = _with_outcomes_of(theirs, self.pair.wires[1].ask(make(self.pair.wires[1], 1)))
            self._advance_epoch(self.pair.wires[0], member, epoch)
        self.pair.compare((answer, theirs), told, _acquired)
        self._session(member, epoch, answer)
        if answer is None or answer.error_code:
            return
        for topic in answer.responses:
            for partition in topic.partitions:
                for run in partition.acquired_records:
                    index = partition.partition_index
                    self.acquired_ends[index] = max(self.acquired_ends[index], run.last_offset + 1)
                    for offset in range(run.first_offset, run.last_offset + 1):
                        self.held[partition.partition_index, offset] = member
                        if run.delivery_count >= DELIVERIES:
                            self.finished.add((partition.partition_index, offset))

    def _advance_epoch(self, wire: Wire, member: int, epoch: int) -> None:
        """Send a request without a change, so that the member's session continues with `epoch` + 1."""
        request = ShareAcknowledgeRequest(
            group_id=wire.name("g"), member_id=self.members[member], share_session_epoch=epoch
        )
        answer = wire.ask(request)
        assert not answer.error_code, answer

    def acknowledge(self) -> None:
        member = self.random.randrange(MEMBERS)
        epoch = self._epoch(member)
        acks = self._acknowledgements(member)
        renews = any(kind == RENEW for _, batch in acks for kind in batch.acknowledge_types)
        says_so = renews if self.random.random() < 0.9 else not renews

        def make(wire: Wire, _: int) -> ShareAcknowledgeRequest:
            wanted = [
                AcknowledgePartition(partition_index=p, acknowledgement_batches=a)
                for p, a in _by_partition(acks).items()
            ]
            return ShareAcknowledgeRequest(
                group_id=wire.name("g"),
                member_id=self.members[member],
                share_session_epoch=epoch,
                is_renew_ack=says_so,
                topics=[AcknowledgeTopic(topic_id=wire.topic_id(wire.name("t")), partitions=wanted)]
                if wanted
                else [],
            )

        answer, _ = self.pair.ask(
            make, f"acknowledge: member {member}, epoch {epoch}, renews {says_so}, {_told(acks)}"
        )
        self._session(member, epoch, answer)

    def _session(self, member: int, epoch: int, answer: Struct | None) -> None:
        if answer is None or answer.error_code:
            return
        if epoch == -1:
            self.epochs[member] = None
            for place in [place for place, holder in self.held.items() if holder == member]:
                del self.held[place]
            time.sleep(0.2)  # Kafka releases what the member held after its answer
        else:
            self.epochs[member] = epoch + 1

    def _acknowledgements(
        self, member: int, fetching: bool = False
    ) -> list[tuple[int, AcknowledgementBatch]]:
        """Return batches of acknowledgements with their partitions: mostly right ones."""
        rng = self.random
        kinds = (1, 1, 3, 4) if fetching else (1, 1, 1, 2, 2, 3, 4)
        found = []
        for partition in range(PARTITIONS):
            mine = sorted(
                offset for (p, offset), holder in self.held.items() if p == partition and holder == member
            )
            taken = False
            while mine and rng.random() < 0.8:
                start = rng.randrange(len(mine)) if rng.random() < 0.3 else 0
                stop = start
                while stop + 1 < len(mine) and mine[stop + 1] == mine[stop] + 1 and rng.random() < 0.8:
                    stop += 1
                first, last = mine[start], mine[stop]
                count = last - first + 1
                types = (
                    [rng.choice(kinds)]
                    if rng.random() < 0.6
                    else [rng.choice((*kinds, 0)) for _ in range(count)]
                )
                found.append(
                    (
                        partition,
                        AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types),
                    )
                )
                for offset, kind in zip(
                    mine[start : stop + 1], types * count if len(types) == 1 else types, strict=True
                ):
                    if kind != RENEW:
                        self.held.pop((partition, offset), None)
                    if kind not in (RELEASE, RENEW):
                        self.finished.add((partition, offset))
                mine = mine[stop + 1 :]
                taken = True
            if rng.random() < (0.08 if taken else 0.05):
                wrong = self._wrong(partition)
                # Kafka has another error if two acknowledgements have only one offset in common.
                if not taken or found[-1][1].last_offset != wrong.first_offset:
                    found.append((partition, wrong))
        if rng.random() < 0.02 and not fetching:
            found.append((7, _batch(0, 0, [1])))
        return found

    def _wrong(self, partition: int) -> AcknowledgementBatch:
        """Return an acknowledgement that may be wrong. It names an offset that the group has not finished.

        If the group's start offset is above all offsets of an acknowledgement, Kafka accepts it. For offsets
        that no member has acquired, the error depends on whether records are in flight. In Kafka, deleted
        records can still be in flight.
        """
        rng = self.random
        start, end = self.log_starts[partition], self.ends[partition] + 3
        if start:
            end = self.acquired_ends[partition] - 5  # the longest acknowledgement ends before
        while start < end and (partition, start) in self.finished:
            start += 1
        if start > end:
            return _batch(start, start, [])
        first = rng.randint(start, end)
        last = first + rng.choice((0, 0, 1, 4, -1))
        self.finished.update((partition, offset) for offset in range(first, last + 1))
        types = rng.choice(([1], [2], [3], [4], [0], [5], [-1], [], [1, 1], [1, 2, 3]))
        return _batch(first, last, types)


def _batch(first: int, last: int, types: list[int]) -> AcknowledgementBatch:
    return AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=types)


def _by_partition(acks: Acknowledgements) -> dict[int, list[AcknowledgementBatch]]:
    found: dict[int, list[AcknowledgementBatch]] = {}
    for partition, batch in acks:
        found.setdefault(partition, []).append(batch)
    return found


def _acquired(answer: Any) -> Any:
    """Return an answer with the offsets of the batches that have acquired records, in place of all bytes.

    Leave out partitions without records and errors.
    """
    if answer is None:
        return None
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            runs = partition["acquired_records"] = _joined(partition["acquired_records"])
            partition["records"] = sorted(
                {
                    (header.base_offset, header.last_offset)
                    for _, header in batches(bytes(partition["records"] or b""))
                    for run in runs
                    if header.base_offset <= run["last_offset"] and run["first_offset"] <= header.last_offset
                }
            )
        topic["partitions"] = [
            each
            for each in topic["partitions"]
            if each["records"] or each["error_code"] or each["acknowledge_error_code"]
        ]
    answer["responses"] = [topic for topic in answer["responses"] if topic["partitions"]]
    return answer


def _has_records(answer: Any) -> bool:
    if answer is None:
        return False
    return any(partition.acquired_records for topic in answer.responses for partition in topic.partitions)


def _with_outcomes_of(earlier: Any, answer: Any) -> Any:
    """Return the answer to a fetch, with the outcomes of the acknowledgements in an earlier one."""
    outcomes = {
        (topic.topic_id, partition.partition_index): partition.acknowledge_error_code
        for topic in earlier.responses
        for partition in topic.partitions
    }
    for topic in answer.responses:
        for partition in topic.partitions:
            outcome = outcomes.get((topic.topic_id, partition.partition_index), 0)
            partition.acknowledge_error_code = outcome
    return answer


def _joined(runs: list[dict[str, int]]) -> list[dict[str, int]]:
    """Return acquired records in the order of offsets, with adjacent runs of one delivery count as one."""
    found: list[dict[str, int]] = []
    for run in sorted(runs, key=lambda run: run["first_offset"]):
        last = found[-1] if found else None
        if (
            last
            and last["last_offset"] + 1 == run["first_offset"]
            and last["delivery_count"] == run["delivery_count"]
        ):
            last["last_offset"] = run["last_offset"]
        else:
            found.append(dict(run))
    return found


def _told(acks: Acknowledgements) -> list[str]:
    return [f"{p}:{b.first_offset}-{b.last_offset} {b.acknowledge_types}" for p, b in acks]
