"""The planner's requests to the brokers: partitions, offsets, times and commits."""

from __future__ import annotations

import logging
import socket
import time
import uuid
from collections.abc import Callable, Collection, Iterator
from typing import Any
from unittest.mock import Mock

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from barnabas.base.errors import BarnabasError, ConfigError, ErrorCode
from barnabas.base.types import ZERO_TOPIC_ID, TopicPartition
from barnabas.client import connection
from barnabas.client.brokers import Brokers
from barnabas.client.errors import ClientError
from barnabas.client.leaders import LeaderResponses
from barnabas.kafka.protocol.framing import RequestHeader, parse_response
from barnabas.kafka.protocol.messages.list_offsets import ListOffsetsPartitionResponse, ListOffsetsRequest
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.kafka.protocol.schema import Response
from barnabas.spark import lookup as lookup_module
from barnabas.spark.lookup import BrokerUnreachableError, OffsetLookup
from barnabas.spark.options import Bound, ReadOptions
from barnabas.spark.topics import Topic
from barnabas.testing import BarnabasCluster

MakeTopic = Callable[..., str]
Lookup = Callable[..., OffsetLookup]


@pytest.fixture
def lookup(servers: str) -> Iterator[Lookup]:
    opened = []

    def lookup(streaming: bool = False, **options: str) -> OffsetLookup:
        options = {name.replace("__", "."): value for name, value in options.items()}
        options.setdefault("kafka.bootstrap.servers", servers)
        opened.append(OffsetLookup(ReadOptions.parse(options, streaming=streaming)))
        return opened[-1]

    yield lookup
    for each in opened:
        each.close()


def starting(lookup: OffsetLookup) -> dict[TopicPartition, int]:
    return lookup.resolve(lookup._options.starting, lookup.partitions())


def test_subscribed_topics_are_read_whole(make_topic: MakeTopic, lookup: Lookup) -> None:
    one, two = sorted([make_topic(1), make_topic(2)])
    found = lookup(subscribe=f"{two},{one}").partitions()
    assert found == sorted(found)
    assert {each.topic for each in found} == {one, two}
    assert len(found) == 3


def test_a_pattern_must_match_the_whole_name(make_topic: MakeTopic, lookup: Lookup) -> None:
    mark = uuid.uuid4().hex[:8]
    make_topic(name=f"{mark}-a")
    make_topic(name=f"{mark}-a-b")
    assert [each.topic for each in lookup(subscribePattern=f"{mark}-.").partitions()] == [f"{mark}-a"]


def test_a_pattern_leaves_internal_topics_out(lookup: Lookup) -> None:
    assert lookup(subscribePattern="__consumer_offsets").partitions() == []


def test_an_unknown_topic_is_refused_by_name(make_topic: MakeTopic, lookup: Lookup) -> None:
    topic = make_topic()
    with pytest.raises(
        ConfigError, match=f"option subscribe={topic},none-such is not allowed: there is no topic"
    ):
        lookup(subscribe=f"{topic},none-such").partitions()


def test_a_partition_that_is_not_there_is_refused(make_topic: MakeTopic, lookup: Lookup) -> None:
    topic = make_topic(2)
    assert lookup(assign=f'{{"{topic}":[1]}}').partitions() == [TopicPartition(topic, 1)]
    with pytest.raises(
        ConfigError, match=f"option assign={topic}:5 is not allowed: topic {topic} has 2 partit"
    ):
        lookup(assign=f'{{"{topic}":[1,5]}}').partitions()
    with pytest.raises(ConfigError, match="topic none-such does not exist"):
        lookup(assign='{"none-such":[0]}').partitions()


def test_offsets_by_partition_mix_numbers_and_ends(
    make_topic: MakeTopic, feed: Callable[..., None], lookup: Lookup
) -> None:
    topic = make_topic(3)
    for partition in range(3):
        feed(topic, range(10), partition)
    bounds = f'{{"{topic}":{{"0":4,"1":-1,"2":-2}}}}'
    found = starting(lookup(True, subscribe=topic, startingOffsets=bounds))
    assert found == {TopicPartition(topic, 0): 4, TopicPartition(topic, 1): 10, TopicPartition(topic, 2): 0}


def test_offsets_must_name_the_partitions_that_are_read(make_topic: MakeTopic, lookup: Lookup) -> None:
    topic = make_topic(2)
    with pytest.raises(ConfigError, match=f"name every partition that is read; missing: {topic}-1"):
        starting(lookup(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":4}}}}'))
    with pytest.raises(ConfigError, match="remove what is not read: other-0"):
        starting(lookup(subscribe=topic, startingOffsets=f'{{"{topic}":{{"0":4,"1":0}},"other":{{"0":1}}}}'))


def test_a_time_gives_the_first_record_at_it_or_later(
    make_topic: MakeTopic, feed: object, lookup: Lookup
) -> None:
    topic = make_topic(2)
    for partition in range(2):
        for timestamp in (1000, 2000, 3000):
            feed.send(topic, value=b"v", partition=partition, timestamp=timestamp)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert starting(lookup(subscribe=topic, startingTimestamp="2000")) == {first: 1, second: 1}
    each = f'{{"{topic}":{{"0":2001,"1":1}}}}'
    assert starting(lookup(subscribe=topic, startingOffsetsByTimestamp=each)) == {first: 2, second: 0}


def test_a_time_that_no_record_has_reached(make_topic: MakeTopic, feed: object, lookup: Lookup) -> None:
    topic = make_topic()
    feed.send(topic, value=b"v", timestamp=1000)
    with pytest.raises(
        ConfigError, match=f"startingTimestamp=5000 is not allowed: partition {topic}-0 has no"
    ):
        starting(lookup(subscribe=topic, startingTimestamp="5000"))
    late = lookup(subscribe=topic, startingTimestamp="5000", startingOffsetsByTimestampStrategy="latest")
    assert starting(late) == {TopicPartition(topic, 0): 1}


def test_a_commit_shows_in_the_group(make_topic: MakeTopic, lookup: Lookup, admin: AdminClient) -> None:
    topic, group = make_topic(2), f"lag-{uuid.uuid4()}"
    asking = lookup(True, subscribe=topic, commitOffsets="true", kafka__group__id=group)
    asking.commit({TopicPartition(topic, 0): 7, TopicPartition(topic, 1): 0})
    asking.commit({TopicPartition(topic, 0): 9, TopicPartition(topic, 1): 0})
    assert committed(admin, group) == {(topic, 0): 9, (topic, 1): 0}


def test_a_commit_that_fails_is_only_logged(lookup: Lookup, caplog: pytest.LogCaptureFixture) -> None:
    asking = lookup(True, subscribe="any", commitOffsets="true", kafka__group__id="g")
    with caplog.at_level(logging.WARNING):
        asking.commit({TopicPartition("none-such", 0): 7})
    assert "cannot commit to group g" in caplog.text


def test_an_unreachable_broker_is_named(lookup: Lookup, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup_module, "_TIMEOUT_S", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        asking = lookup(subscribe="a", kafka__bootstrap__servers=address, kafka__log_level="0")
        with pytest.raises(
            BrokerUnreachableError, match=f"option kafka.bootstrap.servers={address}: no answer"
        ):
            asking.partitions()


def test_offsets_of_a_partition_that_is_gone_are_not_blamed_on_the_servers(
    make_topic: MakeTopic, lookup: Lookup
) -> None:
    topic = make_topic()
    with pytest.raises(
        BarnabasError, match=f"cannot look up offsets of {topic}-7: This broker hosts no such"
    ):
        lookup(subscribe=topic).latest([TopicPartition(topic, 7)])


def committed(admin: AdminClient, group: str) -> dict[tuple[str, int], int]:
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(group)])[group].result(60)
    return {(each.topic, each.partition): each.offset for each in asked.topic_partitions}


class Coordinator:
    """A fake coordinator of a group, with one answer for one partition in each request."""

    def __init__(self, brokers: Brokers, *answers: ErrorCode) -> None:
        self._brokers = brokers
        self._answers = list(answers)
        self.asked: list[Any] = []

    def __call__(self, group: str, call: Callable[[Coordinator, int], object]) -> object:
        return self._brokers.retry(lambda _: call(self, 1))

    def ask(self, request: Any, *, max_version: int) -> OffsetFetchResponse:
        self.asked.append(request)
        (topic,) = request.groups[0].topics
        (number,) = topic.partition_indexes
        error = self._answers.pop(0)
        told = OffsetFetchResponsePartitions(
            partition_index=number, committed_offset=-1 if error else 7, error_code=error
        )
        topics = [OffsetFetchResponseTopics(name=topic.name, partitions=[told])]
        return OffsetFetchResponse(groups=[OffsetFetchResponseGroup(group_id="g", topics=topics)])


def test_a_group_whose_offsets_cannot_be_read_is_not_taken_for_one_that_has_none(
    make_topic: MakeTopic, lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    asking = lookup(subscribe=topic, startingOffsets="group", kafka__group__id="g")
    coordinator = Coordinator(asking._brokers, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    monkeypatch.setattr(asking._brokers, "ask_coordinator", coordinator)
    with pytest.raises(BarnabasError, match=f"offsets of group g: TOPIC_AUTHORIZATION_FAILED: {topic}-0: "):
        starting(asking)


@pytest.mark.parametrize(("isolation", "waits"), [("read_committed", True), ("read_uncommitted", False)])
def test_an_offset_that_a_transaction_may_change_is_waited_for_by_a_reader_of_committed_records(
    isolation: str, waits: bool, make_topic: MakeTopic, lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic()
    asking = lookup(
        subscribe=topic, startingOffsets="group", kafka__group__id="g", kafka__isolation__level=isolation
    )
    unstable = [ErrorCode.UNSTABLE_OFFSET_COMMIT] * 2 if waits else []
    coordinator = Coordinator(asking._brokers, *unstable, ErrorCode.NONE)
    monkeypatch.setattr(asking._brokers, "ask_coordinator", coordinator)
    monkeypatch.setattr(lookup_module, "_RETRY_S", 0.0)
    assert starting(asking) == {TopicPartition(topic, 0): 7}
    assert [each.require_stable for each in coordinator.asked] == [waits] * (len(unstable) + 1)


def test_the_offsets_of_the_options_stay_when_a_group_has_committed_others(
    make_topic: MakeTopic, lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = TopicPartition(make_topic(), 0)
    asking = lookup(subscribe=place.topic)
    bound = Bound("startingOffsets", by_partition={place: 3}, is_committed=True)
    monkeypatch.setattr(asking, "_committed_offsets", lambda _: {place: 7})
    assert asking.resolve(bound, [place]) == {place: 7}
    assert bound.by_partition == {place: 3}


def test_a_group_has_another_coordinator_when_one_hangs(
    barnabas_cluster: Callable[..., BarnabasCluster], lookup: Lookup, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic("records", partitions=1)
    place = TopicPartition("records", 0)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    group = ConsumerGroupTopicPartitions("g", [ClientPartition("records", 0, 7)])
    admin.alter_consumer_group_offsets([group])["g"].result(60)
    asking = lookup(
        True,
        subscribe="records",
        startingOffsets="group",
        commitOffsets="true",
        kafka__group__id="g",
        kafka__bootstrap__servers=cluster.bootstrap_servers,
    )
    partitions = asking.partitions()
    assert asking.resolve(asking._options.starting, partitions) == {place: 7}
    hangs = cluster.admin().describe_group("g").coordinator
    assert hangs is not None
    cluster.pause(hangs)
    try:
        give_up = time.monotonic() + 60
        while cluster.admin().describe_group("g").coordinator == hangs:
            assert time.monotonic() < give_up, "the group has no other coordinator"
        assert asking.resolve(asking._options.starting, partitions) == {place: 7}
        with caplog.at_level(logging.WARNING, "barnabas.spark"):
            asking.commit({place: 9})
        assert "cannot commit" not in caplog.text
        assert asking.resolve(asking._options.starting, partitions) == {place: 9}
    finally:
        cluster.resume(hangs)


class ChangingLeader:
    """Fake brokers of a lookup, whose partition first has no leader or another one."""

    def __init__(
        self,
        asking: OffsetLookup,
        monkeypatch: pytest.MonkeyPatch,
        problem: ErrorCode | ClientError,
        failures: int,
    ) -> None:
        self.asked = 0
        self._problem, self._failures = problem, failures
        monkeypatch.setattr(asking, "_lookup", self)
        monkeypatch.setattr(lookup_module, "LeaderRequests", lambda *_: self)
        monkeypatch.setattr(lookup_module, "_RETRY_S", 0.0)

    def topics(self, names: Collection[str]) -> dict[str, Topic]:
        return {"a": Topic(ErrorCode.NONE, ZERO_TOPIC_ID, {0: 1})}

    def ask(self, deadline: float) -> LeaderResponses:
        self.asked += 1
        tp = TopicPartition("a", 0)
        if self.asked > self._failures:
            return LeaderResponses({tp: ListOffsetsPartitionResponse(offset=7)})
        if isinstance(self._problem, ErrorCode):
            return LeaderResponses(error_codes={tp: self._problem})
        return LeaderResponses(unanswered={tp: self._problem})


@pytest.mark.parametrize(
    "problem",
    [ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.FENCED_LEADER_EPOCH, ClientError("the connection was closed")],
)
def test_offsets_are_asked_for_again_while_a_leader_changes(
    lookup: Lookup, monkeypatch: pytest.MonkeyPatch, problem: ErrorCode | ClientError
) -> None:
    asking = lookup(subscribe="a")
    changing = ChangingLeader(asking, monkeypatch, problem, 8)
    assert asking.latest([TopicPartition("a", 0)]) == {TopicPartition("a", 0): 7}
    assert changing.asked == 9


@pytest.mark.parametrize(
    ("problem", "asked"),
    [(ErrorCode.TOPIC_AUTHORIZATION_FAILED, 1), (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 5)],
)
def test_a_refusal_that_does_not_pass_is_named_and_not_blamed_on_the_servers(
    lookup: Lookup, monkeypatch: pytest.MonkeyPatch, problem: ErrorCode, asked: int
) -> None:
    asking = lookup(subscribe="a")
    refusing = ChangingLeader(asking, monkeypatch, problem, 99)
    with pytest.raises(BarnabasError, match=f"cannot look up offsets of a-0: {problem.doc}"):
        asking.latest([TopicPartition("a", 0)])
    assert refusing.asked == asked


@pytest.mark.parametrize(
    ("problem", "kind", "words"),
    [
        (ErrorCode.LEADER_NOT_AVAILABLE, BarnabasError, "offsets of a-0: The partition has no leader"),
        (ClientError("it is closed"), BrokerUnreachableError, "no answer within 0 s .it is closed."),
    ],
)
def test_what_does_not_pass_in_time_is_named(
    lookup: Lookup,
    monkeypatch: pytest.MonkeyPatch,
    problem: ErrorCode | ClientError,
    kind: type[Exception],
    words: str,
) -> None:
    asking = lookup(subscribe="a")
    ChangingLeader(asking, monkeypatch, problem, 10**9)
    monkeypatch.setattr(lookup_module, "_TIMEOUT_S", 0.0)
    with pytest.raises(kind, match=words):
        asking.latest([TopicPartition("a", 0)])


def test_an_answer_that_says_nothing_new_is_the_same_object_and_not_decoded_again(
    make_topic: MakeTopic, feed: Callable[..., None], lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    topic = make_topic(2)
    asking = lookup(subscribe=topic)
    partitions = asking.partitions()
    latest = asking.latest(partitions)
    decoded = []

    def parse(header: RequestHeader, frame: bytearray) -> Response:
        decoded.append(header.api_key)
        return parse_response(header, frame)

    monkeypatch.setattr(connection, "parse_response", parse)
    for _ in range(3):
        assert asking.partitions() is partitions
        assert asking.latest(partitions) is latest
    assert decoded == []
    feed(topic, "ab", 1)
    assert asking.partitions() is partitions
    assert asking.latest(partitions) == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 2}
    assert decoded == [ListOffsetsRequest.api_key]
    assert latest == {TopicPartition(topic, 0): 0, TopicPartition(topic, 1): 0}, (
        "what was given stays as it was"
    )


def test_a_connection_that_was_closed_while_nothing_happened_is_made_anew(
    make_topic: MakeTopic, feed: Callable[..., None], lookup: Lookup
) -> None:
    topic = make_topic()
    asking = lookup(subscribe=topic)
    latest = asking.latest(asking.partitions())
    for (each,) in asking._brokers._pool._idle.values():
        each._socket.shutdown(socket.SHUT_RDWR)
    assert asking.latest(asking.partitions()) == latest
    feed(topic, "a")
    assert asking.latest(asking.partitions()) == {TopicPartition(topic, 0): 1}


def test_a_sample_is_of_few_partitions_and_stands_for_the_others(
    make_topic: MakeTopic, feed: Callable[..., None], lookup: Lookup, monkeypatch: pytest.MonkeyPatch
) -> None:
    small, large = make_topic(3), make_topic(1)
    for partition, count in enumerate((3, 30, 10)):
        feed(small, ["x" * (10 if partition == 1 else 50)] * count, partition)
    feed(large, ["y" * 1000])
    monkeypatch.setattr(lookup_module, "_SAMPLED_PARTITIONS", 3)
    asking = lookup(True, subscribe=f"{small},{large}", maxBytesPerTrigger="1")
    asked = []
    client = asking._consumer

    def assign(partitions: list[ClientPartition]) -> None:
        asked.extend((each.topic, each.partition) for each in partitions)
        client.assign(partitions)

    monkeypatch.setattr(asking, "_consumer", Mock(wraps=client, assign=assign))
    end = asking.latest(asking.partitions())
    sizes = asking.sample(dict.fromkeys(end, 0), end)
    assert set(asked) == {(large, 0), (small, 1), (small, 2)}, "the furthest behind, and one of each topic"
    assert sizes == {
        TopicPartition(large, 0): 1000,
        TopicPartition(small, 1): 10,
        TopicPartition(small, 2): 50,
        TopicPartition(small, 0): (10 * 30 + 50 * 10) / 40,
    }
