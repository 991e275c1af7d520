"""A task when leaders move, reject requests or do not answer, with a simulated cluster."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.base.errors import BarnabasError, ErrorCode
from barnabas.base.types import ZERO_TOPIC_ID, TopicPartition
from barnabas.client.errors import AuthenticationError, ClientError
from barnabas.kafka.protocol.messages.fetch import (
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.spark import fetcher as fetcher_module
from barnabas.spark.fetch_settings import FetchSettings
from barnabas.spark.fetcher import RangeFetcher
from barnabas.spark.open_ranges import DataLossError, OpenRanges
from barnabas.spark.option_values import EARLIEST, LATEST
from barnabas.spark.ranges import OffsetRange
from barnabas.spark.topics import Topic, id_as_text

A, B = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = b"i" * 16, b"o" * 16
AT_ONCE = FetchSettings.parse({"bootstrap.servers": "a:1", "retry.backoff.ms": "0"})


class Leader:
    """A connection with prepared answers."""

    def __init__(self, node: int, left: list[int]) -> None:
        self._node, self._left = node, left
        self.asked: list[FetchRequest] = []
        self.max_version: int | None = None
        self.answers: list[FetchResponse | Exception] = []

    def send(self, request: FetchRequest, max_version: int | None) -> None:
        self.asked.append(request)
        self.max_version = max_version

    def receive(self, deadline: float) -> FetchResponse:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def abandon(self) -> None:
        self._left.append(self._node)


class StandIn:
    """A cluster with one topic `t`. Broker 1 leads partition 0, and broker 2 partition 1."""

    def __init__(self) -> None:
        self.topic: Topic | Exception = Topic(ErrorCode.NONE, ID, {0: 1, 1: 2})
        self.left: list[int] = []
        self.leaders = {node: Leader(node, self.left) for node in (1, 2)}
        self.brokers = self
        self.ends = {EARLIEST: (ErrorCode.NONE, 0), LATEST: (ErrorCode.NONE, 100)}
        self.lookups = 0

    def topics(self, names: set[str]) -> dict[str, Topic]:
        assert names == {"t"}
        self.lookups += 1
        if isinstance(self.topic, Exception):
            raise self.topic
        return {"t": self.topic}

    def send(self, node: int, request: FetchRequest, max_version: int | None) -> Leader:
        self.leaders[node].send(request, max_version)
        return self.leaders[node]

    def ask(self, node: int, request: ListOffsetsRequest) -> ListOffsetsResponse:
        ((topic, (partition,)),) = [(each.name, each.partitions) for each in request.topics]
        error, offset = self.ends[partition.timestamp]
        told = ListOffsetsPartitionResponse(
            partition_index=partition.partition_index, error_code=error, offset=offset
        )
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=topic, partitions=[told])])


@pytest.fixture
def cluster() -> StandIn:
    return StandIn()


def reading(cluster: StandIn, *ends: int, fail: bool = True) -> tuple[RangeFetcher, OpenRanges]:
    ranges = OpenRanges([OffsetRange("t", number, 3, end) for number, end in enumerate(ends)], fail)
    return RangeFetcher(cluster, AT_ONCE, ranges), ranges  # type: ignore[arg-type]


def answer(
    error: ErrorCode = ErrorCode.NONE, partition: int = 0, topic: str = "", **fields: Any
) -> FetchResponse:
    data = PartitionData(partition_index=partition, error_code=error, **fields)
    return FetchResponse(responses=[FetchableTopicResponse(topic=topic, topic_id=ID, partitions=[data])])


def wanted(request: FetchRequest) -> list[tuple[int, int]]:
    """Return the partitions and offsets in a request."""
    return [(each.partition, each.fetch_offset) for topic in request.topics for each in topic.partitions]


def test_each_leader_is_asked_once_until_it_answers(cluster: StandIn) -> None:
    fetcher, _ = reading(cluster, 9)
    fetcher.request()
    fetcher.request()
    (asked,) = cluster.leaders[1].asked
    assert wanted(asked) == [(0, 3)]
    assert (asked.topics[0].topic, asked.topics[0].topic_id, asked.isolation_level) == ("t", ID, 0)
    assert cluster.leaders[1].max_version is None
    cluster.leaders[1].answers = [answer(high_watermark=50)]
    assert [tp for tp, _ in fetcher.receive()] == [A]
    fetcher.request()
    assert len(cluster.leaders[1].asked) == 2


def test_partitions_of_one_leader_go_into_one_request_those_served_last_behind(cluster: StandIn) -> None:
    cluster.topic = Topic(ErrorCode.NONE, ID, {0: 1, 1: 1})
    fetcher, ranges = reading(cluster, 9, 9)
    ranges.advance(A, 5)
    fetcher.request()
    assert [wanted(each) for each in cluster.leaders[1].asked] == [[(1, 3), (0, 5)]]


def test_brokers_that_give_no_topic_ids_are_asked_by_name(cluster: StandIn) -> None:
    cluster.topic = Topic(ErrorCode.NONE, ZERO_TOPIC_ID, {0: 1})
    fetcher, _ = reading(cluster, 9)
    fetcher.request()
    assert cluster.leaders[1].max_version == 12
    named = FetchableTopicResponse(topic="t", partitions=[PartitionData(partition_index=0)])
    cluster.leaders[1].answers = [FetchResponse(responses=[named])]
    assert [tp for tp, _ in fetcher.receive()] == [A]


@pytest.mark.parametrize(
    "passing",
    [
        answer(ErrorCode.NOT_LEADER_OR_FOLLOWER),
        answer(ErrorCode.UNKNOWN_TOPIC_ID),
        FetchResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR),
        ClientError("the connection was closed"),
    ],
)
def test_a_leader_that_cannot_serve_is_looked_up_again(
    cluster: StandIn, passing: FetchResponse | Exception
) -> None:
    fetcher, _ = reading(cluster, 9)
    fetcher.request()
    cluster.leaders[1].answers = [passing]
    assert list(fetcher.receive()) == []
    cluster.topic = Topic(ErrorCode.NONE, ID, {0: 2})
    fetcher.request()
    assert wanted(cluster.leaders[2].asked[0]) == [(0, 3)]
    assert fetcher.last_problem


def test_a_partition_is_not_asked_for_twice_while_its_former_leader_has_still_to_answer(
    cluster: StandIn,
) -> None:
    fetcher, _ = reading(cluster, 9, 9)
    cluster.topic = Topic(ErrorCode.NONE, ID, {0: 1, 1: -1})  # looked up again for partition 1
    fetcher.request()
    cluster.topic = Topic(ErrorCode.NONE, ID, {0: 2, 1: 2})
    fetcher.request()
    assert [wanted(each) for each in cluster.leaders[2].asked] == [[(1, 3)]]


def test_no_broker_answers_for_a_while(cluster: StandIn) -> None:
    there = cluster.topic
    cluster.topic = ClientError("no broker answers at a:1")
    fetcher, _ = reading(cluster, 9)
    fetcher.request()
    assert list(fetcher.receive()) == []
    assert fetcher.last_problem == "no broker answers at a:1"
    cluster.topic = there
    fetcher.request()
    assert len(cluster.leaders[1].asked) == 1


def test_a_broker_that_does_not_trust_us_fails_the_task_at_once(cluster: StandIn) -> None:
    fetcher, _ = reading(cluster, 9)
    cluster.topic = AuthenticationError("refused")
    with pytest.raises(AuthenticationError):
        fetcher.request()


def test_a_refusal_fails_the_task_with_its_reason(cluster: StandIn) -> None:
    fetcher, _ = reading(cluster, 9)
    fetcher.request()
    cluster.leaders[1].answers = [answer(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(BarnabasError, match=f"cannot read t-0: {ErrorCode.TOPIC_AUTHORIZATION_FAILED.doc}"):
        list(fetcher.receive())
    cluster.topic = Topic(ErrorCode.TOPIC_AUTHORIZATION_FAILED, ID, {})
    with pytest.raises(BarnabasError, match="cannot read t-0"):
        reading(cluster, 9)[0].request()


def test_an_offset_out_of_range_goes_on_at_the_start_of_the_log(cluster: StandIn) -> None:
    fetcher, ranges = reading(cluster, 9, fail=False)
    fetcher.request()
    cluster.leaders[1].answers = [answer(ErrorCode.OFFSET_OUT_OF_RANGE)]
    cluster.ends[EARLIEST] = (ErrorCode.NONE, 5)
    assert list(fetcher.receive()) == []
    assert ranges.position(A) == 5


def test_a_topic_that_stays_away_is_gone_but_one_that_is_late_is_not(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher_module, "_MISSED_FOR_GONE_S", 0.0)
    there = cluster.topic
    cluster.topic = Topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_TOPIC_ID, {})
    fetcher, _ = reading(cluster, 9)
    for _ in range(4):
        fetcher.request()
    cluster.topic = there
    fetcher.request()
    assert len(cluster.leaders[1].asked) == 1

    cluster.topic = Topic(ErrorCode.NONE, ID, {1: 2})  # the topic is there, the partition is not
    fetcher, _ = reading(cluster, 9)
    with pytest.raises(DataLossError, match="t-0 is gone"):
        for _ in range(5):
            fetcher.request()


def test_a_topic_made_anew_under_the_same_name_is_not_read_on(cluster: StandIn) -> None:
    fetcher, ranges = reading(cluster, 9, fail=False)
    fetcher.request()
    cluster.leaders[1].answers = [answer(ErrorCode.UNKNOWN_TOPIC_ID)]
    list(fetcher.receive())
    cluster.topic = Topic(ErrorCode.NONE, OTHER_ID, {0: 1})
    fetcher.request()
    assert not ranges


def test_a_partition_that_metadata_lack_for_a_moment_is_not_taken_to_be_gone(
    cluster: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr(fetcher_module.time, "monotonic", lambda: now[0])
    cluster.topic = Topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ZERO_TOPIC_ID, {})
    fetcher, ranges = reading(cluster, 9)
    for _ in range(20):
        fetcher.request()
    assert cluster.lookups == 20
    assert ranges, "it was asked often, but in no time"
    now[0] += 3
    with pytest.raises(DataLossError, match="t-0 is gone"):
        fetcher.request()


def test_a_topic_made_anew_since_it_was_planned_is_not_read_at_all(cluster: StandIn) -> None:
    ranges = OpenRanges([OffsetRange("t", 0, 3, 9)], fail_on_data_loss=True)
    fetcher = RangeFetcher(cluster, AT_ONCE, ranges, {"t": id_as_text(OTHER_ID)})  # type: ignore[arg-type]
    with pytest.raises(DataLossError, match="t-0 is gone"):
        fetcher.request()
    assert cluster.leaders[1].asked == []


@pytest.mark.parametrize(("before", "after"), [(ZERO_TOPIC_ID, ID), (ID, ZERO_TOPIC_ID)])
def test_a_topic_whose_id_one_broker_knows_and_another_does_not_is_the_same_topic(
    cluster: StandIn, before: bytes, after: bytes
) -> None:
    fetcher, _ = reading(cluster, 9)
    for topic_id in (before, after):
        cluster.topic = Topic(ErrorCode.NONE, topic_id, {0: 1})
        cluster.leaders[1].answers = [answer(ErrorCode.NOT_LEADER_OR_FOLLOWER, topic="t")]
        fetcher.request()
        assert list(fetcher.receive()) == []
    assert [each.topics[0].topic_id for each in cluster.leaders[1].asked] == [before, ID]


@pytest.mark.parametrize(
    ("said", "latest", "ends"),
    [
        (3, (ErrorCode.NONE, 3), True),
        (3, (ErrorCode.NONE, 9), False),  # a new leader, which did not know yet how far its log reaches
        (3, (ErrorCode.OFFSET_NOT_AVAILABLE, -1), False),
        (8, (ErrorCode.NONE, 3), False),  # another partition's records have taken up all the room
    ],
)
def test_a_log_ends_early_only_by_its_leaders_word(
    cluster: StandIn, said: int, latest: tuple[ErrorCode, int], ends: bool
) -> None:
    fetcher, ranges = reading(cluster, 9, fail=False)
    fetcher.request()
    cluster.leaders[1].answers = [answer(high_watermark=said)]
    cluster.ends[LATEST] = latest
    for tp, data in fetcher.receive():
        fetcher.check_end(tp, data)
    assert (not ranges) == ends


def test_an_abandoned_task_leaves_the_leaders_that_have_still_to_answer(cluster: StandIn) -> None:
    fetcher, _ = reading(cluster, 9)
    fetcher.request()
    fetcher.close()
    assert cluster.left == [1]
