"""Options of a job: accepted as by Spark's own connector, or rejected with one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.types import TopicPartition
from barnabas.spark.fetch_settings import FetchSettings
from barnabas.spark.option_values import EARLIEST, LATEST, topic_pattern
from barnabas.spark.options import ReadOptions, WriteOptions

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
READ = {**SERVERS, "subscribe": "orders"}


def read(streaming: bool = False, **options: str) -> ReadOptions:
    return ReadOptions.parse({**READ, **options}, streaming=streaming)


def refusal(options: dict[str, str], streaming: bool = False) -> str:
    with pytest.raises(ConfigError) as caught:
        ReadOptions.parse(options, streaming=streaming)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_batch_reads_from_earliest_to_latest_by_default() -> None:
    options = read()
    assert (options.starting.everywhere, options.ending.everywhere) == (EARLIEST, LATEST)


def test_a_stream_starts_at_the_latest_offset_by_default() -> None:
    assert read(streaming=True).starting.everywhere == LATEST


def test_option_names_are_taken_in_any_case() -> None:
    options = ReadOptions.parse(
        {**SERVERS, "SUBSCRIBE": "a", "startingoffsets": "EARLIEST", "MinPartitions": "3"}, streaming=True
    )
    assert (options.topics, options.starting.everywhere, options.min_partitions) == (("a",), EARLIEST, 3)


def test_topics_are_split_at_commas_and_named_once() -> None:
    assert read(subscribe=" a, b,,a ").topics == ("a", "b")


def test_assign_takes_partitions_as_json() -> None:
    options = ReadOptions.parse({**SERVERS, "assign": '{"b":[1,0],"a":[2]}'}, streaming=False)
    assert options.partitions == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


def test_offsets_by_partition_are_taken_as_json_with_the_two_ends_as_negatives() -> None:
    bound = read(endingOffsets='{"orders":{"0":23,"1":-1}}').ending
    assert bound.by_partition == {TopicPartition("orders", 0): 23, TopicPartition("orders", 1): -1}


def test_a_timestamp_goes_before_timestamps_by_partition_and_those_before_offsets() -> None:
    by_partition = {"startingOffsetsByTimestamp": '{"orders":{"0":5}}', "startingOffsets": "earliest"}
    assert read(startingTimestamp="7", **by_partition).starting.option == "startingTimestamp"
    assert read(**by_partition).starting.option == "startingOffsetsByTimestamp"


def test_a_start_later_than_every_record_fails_unless_the_strategy_says_latest() -> None:
    assert not read(startingTimestamp="7").starting.latest_when_too_late
    late = read(startingTimestamp="7", startingOffsetsByTimestampStrategy="LATEST")
    assert late.starting.latest_when_too_late
    assert read(endingTimestamp="7").ending.latest_when_too_late


def test_kafka_settings_are_passed_on_without_their_prefix() -> None:
    assert read(**{"kafka.client.id": "me"}).client == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "me",
    }


def test_the_java_consumers_names_are_taken_for_librdkafkas() -> None:
    client = read(**{"kafka.fetch.max.wait.ms": "250", "kafka.request.timeout.ms": "9000"}).client
    assert (client["fetch.wait.max.ms"], client["socket.timeout.ms"]) == ("250", "9000")
    assert FetchSettings.parse(client).max_wait_ms == 250


def test_the_ends_of_a_log_are_written_as_timestamps_too() -> None:
    bound = read(startingOffsetsByTimestamp='{"orders":{"0":-2,"1":5}}', endingTimestamp="-1")
    assert bound.starting.by_partition == {TopicPartition("orders", 0): -2, TopicPartition("orders", 1): 5}
    assert bound.ending.everywhere == LATEST


@pytest.mark.parametrize("pattern", [r"\p{Alpha}+-\p{Digit}++", "[a-z&&[^q]]+-7", r"(?i)LOGS-\d"])
def test_a_pattern_is_written_as_in_java(pattern: str) -> None:
    options = ReadOptions.parse({**SERVERS, "subscribePattern": pattern}, streaming=False)
    assert options.pattern == pattern
    assert topic_pattern("subscribePattern", pattern).fullmatch("logs-7")


def test_a_group_prefix_names_the_group_where_no_group_is_named() -> None:
    assert read(groupIdPrefix="mine").client["group.id"] == "mine"
    assert read(groupIdPrefix="mine", **{"kafka.group.id": "g"}).client["group.id"] == "g"


def test_sparks_own_options_are_let_through() -> None:
    options = {**SERVERS, "topic": "t", "checkpointLocation": "here", "queryName": "q"}
    assert WriteOptions.parse(options, streaming=True).topic == "t"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"subscribe": "a"}, "option kafka.bootstrap.servers is missing: set it to your broker"),
        (SERVERS, "set one of the options subscribe, subscribePattern, assign: there is none of them"),
        ({**READ, "assign": '{"a":[0]}'}, 'there is subscribe=orders and assign={"a":[0]}'),
        ({**READ, "subscribe": " , "}, "option subscribe=, is not allowed: name topics, separated by commas"),
        ({**SERVERS, "subscribePattern": "("}, "option subscribePattern=( is not allowed: it is not a regu"),
        ({**SERVERS, "subscribePattern": " "}, "option subscribePattern= is not allowed: write a regular"),
        ({**SERVERS, "assign": "a:0"}, "option assign=a:0 is not allowed: write the partitions"),
        ({**SERVERS, "assign": '{"a":[-1]}'}, 'option assign={"a":[-1]} is not allowed'),
        ({**SERVERS, "assign": "{}"}, "option assign={} is not allowed"),
        ({**READ, "startingOffsets": "latest"}, "option startingOffsets=latest is not allowed: a batch that"),
        ({**READ, "startingOffsets": '{"orders":{"0":-1}}'}, "a batch that starts at the latest offset"),
        ({**READ, "endingOffsets": "earliest"}, "option endingOffsets=earliest is not allowed: a batch that"),
        ({**READ, "startingOffsets": "first"}, "option startingOffsets=first is not allowed: write earliest"),
        ({**READ, "startingOffsets": '{"orders":{"0":-3}}'}, "is not allowed: write the offsets"),
        ({**READ, "startingOffsets": '{"orders":{"x":3}}'}, "is not allowed: write earliest, latest, or"),
        ({**READ, "startingOffsets": '{"orders":{"0":true}}'}, "is not allowed: write the offsets"),
        ({**READ, "startingTimestamp": "noon"}, "option startingTimestamp=noon is not allowed: write milli"),
        ({**READ, "endingOffsetsByTimestamp": '{"orders":{"0":-3}}'}, "write the milliseconds"),
        (
            {**READ, "startingTimestamp": "-3"},
            "option startingTimestamp=-3 is not allowed: write milliseconds",
        ),
        (
            {**READ, "kafka.max.poll.recods": "500"},
            "option kafka.max.poll.recods=500 is not allowed: it has no",
        ),
        (
            {**READ, "kafka.linger.ms": "5"},
            "option kafka.linger.ms=5 is not allowed: it has no effect on reading",
        ),
        ({**READ, "startingOffsetsByTimestampStrategy": "guess"}, "=guess is not allowed: choose from error"),
        (
            {**READ, "maxOffsetsPerTrigger": "0"},
            "option maxOffsetsPerTrigger=0 is not allowed: write a whole",
        ),
        ({**READ, "minPartitions": "many"}, "option minPartitions=many is not allowed: write a whole number"),
        ({**READ, "failOnDataLoss": "no"}, "option failOnDataLoss=no is not allowed: write true or false"),
        (
            {**READ, "startingOffset": "earliest"},
            "startingoffset=earliest is not allowed: did you mean starting",
        ),
        ({**READ, "colour": "red"}, "option colour=red is not allowed: there is no such option; remove it"),
        (
            {**READ, "kafka.auto.offset.reset": "latest"},
            "latest is not allowed: use the option startingOffsets",
        ),
        ({**READ, "commitOffsets": "true", "kafka.group.id": "g"}, "only a stream commits"),
        (
            {**READ, "startingOffsets": "group"},
            "option startingOffsets=group is not allowed: set kafka.group",
        ),
        ({**READ, "endingOffsets": "group"}, "option endingOffsets=group is not allowed: write earliest"),
        (
            {**READ, "maxBytesPerTrigger": "9"},
            "option maxBytesPerTrigger=9 is not allowed: a batch reads all",
        ),
        ({**READ, "maxRecordsPerPartition": "0"}, "maxRecordsPerPartition=0 is not allowed: write a whole"),
    ],
)
def test_a_bad_option_is_refused_in_one_line_with_its_value_and_the_cure(
    options: dict[str, str], expected: str
) -> None:
    assert expected in refusal(options)


def test_a_stream_refuses_an_end() -> None:
    message = refusal({**READ, "endingOffsets": "latest"}, streaming=True)
    assert message == (
        "option endingOffsets=latest is not allowed: a stream has no end: remove it, or read in batch"
    )


def test_committing_needs_the_group_to_commit_to() -> None:
    assert "set kafka.group.id" in refusal({**READ, "commitOffsets": "true"}, streaming=True)


@pytest.mark.parametrize(
    ("written", "seconds"), [("250", 0.25), ("500ms", 0.5), ("30s", 30), ("15m", 900), ("2 h", 7200)]
)
def test_a_delay_is_written_as_spark_writes_it(written: str, seconds: float) -> None:
    options = {**READ, "minOffsetsPerTrigger": "5", "maxTriggerDelay": written}
    assert ReadOptions.parse(options, streaming=True).max_trigger_delay_s == seconds


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (
            {"minOffsetsPerTrigger": "5", "maxTriggerDelay": "soon"},
            "maxTriggerDelay=soon is not allowed: write",
        ),
        ({"maxTriggerDelay": "5s"}, "option maxTriggerDelay=5s is not allowed: set minOffsetsPerTrigger too"),
    ],
)
def test_a_bad_limit_of_a_stream_is_refused(options: dict[str, str], expected: str) -> None:
    assert expected in refusal({**READ, **options}, streaming=True)


def test_a_secret_is_not_repeated_in_the_message() -> None:
    message = refusal({**READ, "kafka.sasl.jaas.config": 'PlainLoginModule password="pssst";'})
    assert "pssst" not in message
    assert "option kafka.sasl.jaas.config cannot be read: write MODULE required username=" in message
    assert "pssst" not in repr(read(**{"kafka.sasl.password": "pssst"}))


def test_a_file_of_client_settings_is_taken_and_options_override_it(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(
        "bootstrap.servers=a:1\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nacks=all\n"
        'sasl.jaas.config=x.PlainLoginModule required username="alice" password="pssst";\n'
    )
    given = {"barnabas.config": str(file), "kafka.sasl.username": "bob", "subscribe": "t"}
    read = ReadOptions.parse(given, streaming=False)
    assert read.client == {
        "bootstrap.servers": "a:1",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "bob",
        "sasl.password": "pssst",
    }
    assert "pssst" not in repr(read)
    write = WriteOptions.parse({"barnabas.config": str(file), "topic": "t"}, streaming=False)
    assert write.client["sasl.username"] == "alice"
    file.write_text("sasl.mechanisim=PLAIN\nsasl.password=pssst\n")
    message = refusal(given)
    assert "option barnabas.config" in message and "did you mean sasl.mechanism" in message
    assert "pssst" not in message
    assert "cannot be read" in refusal({**given, "barnabas.config": "/no/such"})


def test_a_write_refuses_the_options_of_a_read() -> None:
    with pytest.raises(ConfigError, match="option subscribe=a is not allowed: there is no such option"):
        WriteOptions.parse({**SERVERS, "subscribe": "a"}, streaming=False)


def test_a_write_takes_include_headers_as_sparks_connector_does() -> None:
    assert (
        WriteOptions.parse({**SERVERS, "topic": "t", "includeHeaders": "true"}, streaming=False).topic == "t"
    )
    with pytest.raises(ConfigError, match="option includeHeaders=yes is not allowed: write true or false"):
        WriteOptions.parse({**SERVERS, "includeHeaders": "yes"}, streaming=False)


def test_a_write_refuses_an_empty_topic() -> None:
    with pytest.raises(ConfigError, match="option topic= is not allowed: name a topic"):
        WriteOptions.parse({**SERVERS, "topic": " "}, streaming=False)


ONCE = {**SERVERS, "topic": "t", "barnabas.delivery": "exactly-once"}
NUMBERED = {"barnabas.sinkId": "s", "barnabas.batchId": "7"}


def test_rows_are_written_at_least_once_unless_asked() -> None:
    assert not WriteOptions.parse({**SERVERS, "topic": "t"}, streaming=True).exactly_once
    assert WriteOptions.parse(ONCE, streaming=True).exactly_once


def test_a_batch_that_writes_exactly_once_may_have_a_number() -> None:
    assert WriteOptions.parse(ONCE, streaming=False).sink is None
    numbered = WriteOptions.parse({**ONCE, **NUMBERED}, streaming=False)
    assert (numbered.sink, numbered.batch, numbered.fail_on_changed_replay) == ("s", 7, True)


@pytest.mark.parametrize(
    ("streaming", "options", "expected"),
    [
        (True, {**ONCE, "barnabas.delivery": "once"}, "choose from at-least-once, exactly-once"),
        (
            True,
            {**ONCE, **NUMBERED},
            "option barnabas.sinkId=s is not allowed: a stream counts its own batch",
        ),
        (
            False,
            {**ONCE, "barnabas.sinkId": "s"},
            "option barnabas.sinkId=s is not allowed: set barnabas.bat",
        ),
        (False, {**ONCE, "barnabas.batchId": "7"}, "barnabas.batchId=7 is not allowed: set barnabas.sinkId"),
        (False, {**ONCE, **NUMBERED, "barnabas.batchId": "-1"}, "batchId=-1 is not allowed: write a whole"),
        (False, {**ONCE, **NUMBERED, "barnabas.sinkId": "a b"}, "barnabas.sinkId=a b is not allowed: write"),
        (False, {**SERVERS, **NUMBERED}, "it is for barnabas.delivery=exactly-once: set that too"),
        (
            True,
            {**SERVERS, "kafka.transactional.id": "mine"},
            "option kafka.transactional.id=mine is not allowed: the data source names its own; use barnabas",
        ),
    ],
)
def test_a_bad_option_of_a_write_is_refused_in_one_line(
    streaming: bool, options: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        WriteOptions.parse(options, streaming=streaming)
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)
