"""Three brokers of Barnabas and of Apache Kafka name the same leaders, in the same bytes (KIP-951)."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from bench.artifacts import Unavailable
from bench.cluster import CLUSTERS, ClusterPeer
from tests.compat.scenarios.data import batch
from tests.compat.wire import Wire, error_codes

from barnabas.kafka.protocol.framing import encode_response, parse_response
from barnabas.kafka.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.messages.share_fetch import FetchPartition as SharePartition
from barnabas.kafka.protocol.messages.share_fetch import FetchTopic as ShareTopic
from barnabas.kafka.protocol.messages.share_fetch import ShareFetchRequest
from barnabas.kafka.protocol.schema import Request, Struct

#: the time limit for each change of the metadata
PATIENCE_SECONDS = 60.0
#: the replicas of each topic's partitions at first; broker 3 has none of "t"
TOPICS = {"t": [[1, 2], [2, 1]], "solo": [[3]]}


class Answer(NamedTuple):
    #: what was asked
    about: str
    response: Any
    #: the bytes, without correlation ids, ports, topic ids and the texts of errors
    frame: bytes


class Conversation:
    """The same requests to the brokers of a cluster, and the answers."""

    def __init__(self, cluster: ClusterPeer) -> None:
        self._cluster = cluster
        self._wires = {number: Wire(peer.bootstrap, 0, "") for number, peer in enumerate(cluster.members, 1)}
        self._ids: dict[str, bytes] = {}
        self.answers: list[Answer] = []

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()

    def run(self) -> list[Answer]:
        self._create_topics()
        for version in (9, 10, 13):
            self._produce(2, version)  # a follower
            self._produce(3, version)  # no replica
        for version in (12, 15, 16, 17, 18):
            self._fetch(3, version)
        self._fetch_in_a_session()
        self._share_fetch()
        self._move()
        self._produce(1, 13)
        self._fetch(1, 17)
        self._fetch(2, 17, leader_epoch=0)  # fenced
        self._cluster.members[2].stop()
        self._await("solo", lambda partitions: partitions[0].leader_id == -1, brokers=(1,))
        self._fetch(1, 17, "solo")
        return self.answers

    def _create_topics(self) -> None:
        for name, replicas in TOPICS.items():
            assignments = [
                CreatableReplicaAssignment(partition_index=index, broker_ids=each)
                for index, each in enumerate(replicas)
            ]
            topic = CreatableTopic(
                name=name, num_partitions=-1, replication_factor=-1, assignments=assignments
            )
            created = self._wires[1].ask(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7)
            assert not any(error_codes(created)), created
            self._ids[name] = created.topics[0].topic_id
            self._await(name, lambda partitions: all(each.leader_id > 0 for each in partitions))

    def _await(
        self, topic: str, condition: Callable[[Any], bool], brokers: tuple[int, ...] = (1, 2, 3)
    ) -> None:
        """Wait until these brokers have partitions of a topic that fulfil the condition."""
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)])
        deadline = time.monotonic() + PATIENCE_SECONDS
        for broker in brokers:
            while True:
                found = self._wires[broker].ask(request, 12).topics[0]
                if not found.error_code and condition(found.partitions):
                    break
                assert time.monotonic() < deadline, found
                time.sleep(0.05)

    def _ask(self, about: str, broker: int, request: Request, version: int) -> Any:
        wire = self._wires[broker]
        header = wire.send(request, version)
        frame = wire._receive(struct.unpack(">i", wire._receive(4))[0])
        response = parse_response(header, frame)
        _forget_texts(response)
        header = header._replace(correlation_id=0)
        frame = b"".join(map(bytes, encode_response(header, response)))
        for name, topic_id in self._ids.items():
            frame = frame.replace(topic_id, name.encode().ljust(16))
        for number, peer in enumerate(self._cluster.members, 1):
            frame = frame.replace(peer.port.to_bytes(4), b"%4d" % number)
        self.answers.append(Answer(f"{about} v{version} at broker {broker}", response, frame))
        return response

    def _produce(self, broker: int, version: int) -> None:
        data = PartitionProduceData(index=0, records=batch())
        topics = [TopicProduceData(name="t", topic_id=self._ids["t"], partition_data=[data])]
        request = ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=topics)
        self._ask("produce", broker, request, version)

    def _fetch_topic(self, topic: str, leader_epoch: int = -1) -> FetchTopic:
        wanted = [
            FetchPartition(partition=index, current_leader_epoch=leader_epoch, partition_max_bytes=1000)
            for index in range(len(TOPICS[topic]))
        ]
        return FetchTopic(topic=topic, topic_id=self._ids[topic], partitions=wanted)

    def _fetch(self, broker: int, version: int, topic: str = "t", leader_epoch: int = -1) -> None:
        request = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[self._fetch_topic(topic, leader_epoch)])
        self._ask(f"fetch {topic}", broker, request, version)

    def _fetch_in_a_session(self) -> None:
        first = FetchRequest(session_epoch=0, topics=[self._fetch_topic("t"), self._fetch_topic("solo")])
        opened = self._wires[3].ask(first, 17)
        again = FetchRequest(session_id=opened.session_id, session_epoch=1, max_wait_ms=1, min_bytes=1)
        answer = self._ask("fetch in a session", 3, again, 17)
        frame = self.answers[-1].frame.replace(answer.session_id.to_bytes(4), b"id  ")
        self.answers[-1] = self.answers[-1]._replace(frame=frame)

    def _share_fetch(self) -> None:
        topic = ShareTopic(topic_id=self._ids["t"], partitions=[SharePartition(partition_index=0)])
        request = ShareFetchRequest(
            group_id="g", member_id="A" * 22, max_wait_ms=1, max_bytes=1000, max_records=1, topics=[topic]
        )
        self._ask("share fetch", 3, request, 2)

    def _move(self) -> None:
        """Move the first partition of "t" from broker 1 to the others."""
        wanted = ReassignablePartition(partition_index=0, replicas=[2, 3])
        topics = [ReassignableTopic(name="t", partitions=[wanted])]
        request = AlterPartitionReassignmentsRequest(timeout_ms=30_000, topics=topics)
        assert not any(error_codes(self._wires[1].ask(request, 0)))

        def has_moved(partitions: Any) -> bool:
            (first,) = [each for each in partitions if each.partition_index == 0]
            return first.leader_id == 2 and sorted(first.replica_nodes) == [2, 3]

        self._await("t", has_moved)


def _forget_texts(message: Any) -> None:
    for name in message.__annotations__:
        value = getattr(message, name)
        if name.endswith("error_message"):
            setattr(message, name, None)
        for item in value if isinstance(value, list) else ():
            if isinstance(item, Struct):
                _forget_texts(item)


def answers_of(name: str, folder: Path) -> list[Answer]:
    cluster = CLUSTERS[name](folder / name)
    try:
        cluster.start()
        with closing(Conversation(cluster)) as conversation:
            return conversation.run()
    except Unavailable as error:
        pytest.skip(str(error))
    finally:
        cluster.stop()


def test_rejected_partitions_have_the_leaders_of_kafka(classpath: str, tmp_path: Path) -> None:
    ours, theirs = answers_of("barnabas", tmp_path), answers_of("kafka", tmp_path)
    assert [each.about for each in ours] == [each.about for each in theirs]
    different = [
        f"{mine.about}:\n    {mine.response}\n    {expected.response}"
        for mine, expected in zip(ours[:-1], theirs[:-1], strict=True)
        if mine.frame != expected.frame
    ]
    assert not different, "\n".join(different)
    # Without a leader, Kafka sends an epoch alone, which no client can use (docs/reference/differences.md).
    mine, expected = (each[-1].response.responses[0].partitions[0] for each in (ours, theirs))
    assert mine.error_code == expected.error_code
    assert (mine.current_leader.leader_id, mine.current_leader.leader_epoch) == (-1, -1)
    assert (expected.current_leader.leader_id, expected.current_leader.leader_epoch > 0) == (-1, True)
