"""Random walks of a share group over topics that are deleted, created again, and get more partitions."""

from __future__ import annotations

import time
from collections import defaultdict
from typing import Any, TypeAlias

from tests.compat.scenarios.share_groups import beat
from tests.compat.walks.data import LIMIT
from tests.compat.walks.pair import SETTLING_SECONDS, Pair
from tests.compat.walks.recreation import TOPICS, RecreationWalk
from tests.compat.walks.shares import GROUP_RESOURCE
from tests.compat.wire import Wire

from barnabas.kafka.protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.share_acknowledge import (
    AcknowledgePartition,
    AcknowledgeTopic,
    ShareAcknowledgeRequest,
)
from barnabas.kafka.protocol.messages.share_fetch import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)

GROUP, MEMBER = "h", "member"
#: how long each fetch waits for records
WAIT_MS = 100
ACCEPT = 1
#: acquired offsets by topic and partition
Acquired: TypeAlias = defaultdict[tuple[str, int], set[int]]


class ShareRecreationWalk(RecreationWalk):
    """Clients of `RecreationWalk`, and the one member of a share group, which consumes all records."""

    #: no transactions: Kafka's member also acquires the offsets of markers
    senders = ("", None)

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        pair.each(self._begin_at_the_first_record)
        self.member_epochs = [0, 0]

    def run(self, steps: int) -> None:
        for topic in TOPICS:
            self.create(topic)
        work = {
            self.recreate: 1.5, self.grow: 0.7, self.produce: 8, self.delete_records: 0.7, self.consume: 3,
            self.describe_offsets: 1, self.leave: 0.5,
        }  # fmt: skip
        for _ in range(steps):
            self.random.choices(list(work), list(work.values()))[0]()

    def _begin_at_the_first_record(self, wire: Wire) -> None:
        config = AlterableConfig(name="share.auto.offset.reset", config_operation=0, value="earliest")
        resource = AlterConfigsResource(
            resource_type=GROUP_RESOURCE, resource_name=wire.name(GROUP), configs=[config]
        )
        answer = wire.ask(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == 0, answer

    def leave(self) -> None:
        if all(self.member_epochs):
            self.pair.ask(lambda wire, _: beat(wire, MEMBER, -1, group=GROUP), "leave")
            self.member_epochs = [0, 0]

    def _join(self, wire: Wire, number: int) -> None:
        """Send heartbeats until the member has all partitions of all topics."""
        deadline = time.monotonic() + SETTLING_SECONDS
        while True:
            answer = wire.ask(beat(wire, MEMBER, self.member_epochs[number], *TOPICS, group=GROUP))
            assert not answer.error_code, answer
            self.member_epochs[number] = answer.member_epoch
            if answer.assignment is not None:
                held = {each.topic_id: len(each.partitions) for each in answer.assignment.topic_partitions}
                if held == {self._id(wire, topic): n for topic, n in self.partitions.items() if n}:
                    return
            assert time.monotonic() < deadline, answer
            time.sleep(0.05)

    def consume(self) -> None:
        """Let the member fetch and accept all records in a session of its own."""
        wires = self.pair.wires
        for number, wire in enumerate(wires):
            self._join(wire, number)
        found: list[Acquired] = [defaultdict(set), defaultdict(set)]
        epoch, has_news = 0, True
        deadline = time.monotonic() + SETTLING_SECONDS
        # Share partitions are initialized late: their first fetches can be empty.
        while (has_news or epoch < 2 or found[0] != found[1]) and time.monotonic() < deadline:
            news = [self._fetch(wire, epoch, found[number]) for number, wire in enumerate(wires)]
            has_news = any(news)
            epoch += 1
        told = f"consume {_readable(found[1])} with {epoch} fetches"
        self.pair.compare([_readable(each) for each in found], told)
        self.pair.ask(lambda wire, number: self._accept(wire, epoch, found[number]), "accept")
        self.pair.ask(
            lambda wire, _: ShareFetchRequest(
                group_id=wire.name(GROUP), member_id=MEMBER, share_session_epoch=-1
            ),
            "end the session",
        )

    def _fetch(self, wire: Wire, epoch: int, acquired: Acquired) -> bool:
        """Add the offsets that the member acquires to `acquired`. Return whether there are any."""
        names = {self._id(wire, topic): topic for topic, count in self.partitions.items() if count}
        wanted = [
            FetchTopic(
                topic_id=topic_id,
                partitions=[FetchPartition(partition_index=n) for n in range(self.partitions[topic])],
            )
            for topic_id, topic in names.items()
        ]
        answer = wire.ask(
            ShareFetchRequest(
                group_id=wire.name(GROUP),
                member_id=MEMBER,
                share_session_epoch=epoch,
                max_wait_ms=WAIT_MS,
                min_bytes=1,
                max_bytes=LIMIT,
                max_records=500,
                batch_size=500,
                topics=[] if epoch else wanted,
            )
        )
        assert not answer.error_code, answer
        runs = [
            (names[topic.topic_id], partition, run)
            for topic in answer.responses
            for partition in topic.partitions
            for run in partition.acquired_records
        ]
        for name, partition, run in runs:
            acquired[name, partition.partition_index] |= set(range(run.first_offset, run.last_offset + 1))
        return bool(runs)

    def _accept(self, wire: Wire, epoch: int, acquired: Acquired) -> ShareAcknowledgeRequest:
        topics: dict[str, list[AcknowledgePartition]] = {}
        for (topic, index), offsets in acquired.items():
            batches = [
                AcknowledgementBatch(first_offset=each, last_offset=each, acknowledge_types=[ACCEPT])
                for each in sorted(offsets)
            ]
            topics.setdefault(topic, []).append(
                AcknowledgePartition(partition_index=index, acknowledgement_batches=batches)
            )
        return ShareAcknowledgeRequest(
            group_id=wire.name(GROUP),
            member_id=MEMBER,
            share_session_epoch=epoch,
            topics=[
                AcknowledgeTopic(topic_id=self._id(wire, topic), partitions=partitions)
                for topic, partitions in topics.items()
            ],
        )

    def describe_offsets(self) -> None:
        self.pair.ask(
            lambda wire, _: DescribeShareGroupOffsetsRequest(
                groups=[DescribeShareGroupOffsetsRequestGroup(group_id=wire.name(GROUP), topics=None)]
            ),
            "describe the share group",
            _partitions,
            patient=True,
        )


def _readable(acquired: Acquired) -> dict[str, list[int]]:
    return {f"{topic}-{index}": sorted(offsets) for (topic, index), offsets in acquired.items()}


def _partitions(answer: Any) -> Any:
    """Return the error codes by topic and partition: Kafka stores a start offset with the next change."""
    return {
        f"{topic['topic_name']}-{partition['partition_index']}": partition["error_code"]
        for group in answer["groups"]
        for topic in group["topics"]
        for partition in topic["partitions"]
    }
