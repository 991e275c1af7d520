"""`barnabas produce` and `barnabas consume` against a broker."""

import json
import time

import pytest


@pytest.fixture
def topic(barnabas_topic):
    return barnabas_topic


def test_lines_go_in_and_come_out(barnabas, topic):
    barnabas("produce", topic, stdin="one\ntwo\r\n\nfour")
    assert barnabas("consume", topic, "--until-end").out == "one\ntwo\n\nfour\n"


def test_keys_and_headers_go_in_and_come_out(barnabas, topic):
    barnabas("produce", topic, "--key-separator", ":", "-H", "trace=abc", stdin="a:1\nb:2:3\nnone\n")
    assert barnabas("consume", topic, "-e", "--with-keys").out == "a\t1\nb\t2:3\n\tnone\n"
    records = [json.loads(line) for line in barnabas("consume", topic, "-e", "--json").lines]
    assert [record["key"] for record in records] == ["a", "b", None]
    assert records[0]["headers"] == [["trace", "abc"]]


def test_json_lines_make_the_round_trip(barnabas, topic):
    lines = [
        {"value": "text", "key": "k", "headers": [["h", "v"], ["h", None]], "timestamp": 1_700_000_000_000},
        {"value": None, "key": "gone"},
        {"value": {"base64": "AP8="}},
        {"value": {"nested": [1, 2]}},
    ]
    barnabas("produce", topic, "--json", stdin="\n".join(map(json.dumps, lines)))
    records = [json.loads(line) for line in barnabas("consume", topic, "-e", "--json").lines]
    assert [record["value"] for record in records] == ["text", None, {"base64": "AP8="}, '{"nested": [1, 2]}']
    assert records[0]["headers"] == [["h", "v"], ["h", None]]
    assert records[0]["timestamp"] == 1_700_000_000_000
    barnabas("produce", topic, "--json", stdin=barnabas("consume", topic, "-e", "--json").out)
    assert len(barnabas("consume", topic, "-e", "--json").lines) == 8


def test_bytes_come_out_as_they_went_in(barnabas_broker, barnabas, topic):
    data = bytes(range(256)) * 10
    barnabas("produce", topic, "--raw", stdin=data)
    [record] = barnabas_broker.consume(topic, 1)
    assert record.value == data


def test_null_values_and_one_key_for_all(barnabas, topic):
    barnabas("produce", topic, "--key", "k", "--null-as", "NULL", stdin="NULL\nx\n")
    records = [json.loads(line) for line in barnabas("consume", topic, "-e", "--json").lines]
    assert [(record["key"], record["value"]) for record in records] == [("k", None), ("k", "x")]


def test_the_report_says_where_each_record_lies(barnabas, topic):
    assert barnabas("produce", topic, "--report", stdin="a\nb\n").lines == [
        f"{topic}\t0\t0",
        f"{topic}\t0\t1",
    ]


def test_a_template_gives_any_form(barnabas, topic):
    barnabas("produce", topic, "-K", "=", "-H", "a=b", stdin="k=v\n")
    form = r"{topic}/{partition}@{offset} {key}->{value} [{headers}]\n"
    assert barnabas("consume", topic, "-e", "--format", form).out == f"{topic}/0@0 k->v [a=b]\n"
    assert barnabas("consume", topic, "-e", "--format", "{time}").out.endswith("Z")


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_come_out_whole(barnabas, topic, codec):
    text = "".join(f"line {number} of many\n" for number in range(500))
    barnabas("produce", topic, "--compression", codec, stdin=text)
    assert barnabas("consume", topic, "-e").out == text


def test_reading_begins_where_it_is_asked_to(barnabas, topic):
    barnabas("produce", topic, stdin="".join(f"{number}\n" for number in range(10)))
    assert barnabas("consume", topic, "-e", "--offset", 7).lines == ["7", "8", "9"]
    assert barnabas("consume", topic, "-e", "--offset", -2).lines == ["8", "9"]
    assert barnabas("consume", topic, "--from-beginning", "-n", 3).lines == ["0", "1", "2"]
    assert barnabas("consume", topic, "-e", "-p", "0", "-n", 1).lines == ["0"]


def test_reading_begins_at_a_time(barnabas, topic):
    old = int(time.time() * 1000) - 3_600_000
    lines = [{"value": "old", "timestamp": old}, {"value": "new"}]
    barnabas("produce", topic, "--json", stdin="\n".join(map(json.dumps, lines)))
    assert barnabas("consume", topic, "-e", "--since", "10m").lines == ["new"]
    assert barnabas("consume", topic, "-e", "--since", "2h").lines == ["old", "new"]
    assert barnabas("consume", topic, "-e", "--since", "2999-01-01").lines == []


def test_an_empty_topic_ends_at_once(barnabas, topic):
    assert barnabas("consume", topic, "--until-end").out == ""


def test_a_group_goes_on_where_it_stopped(barnabas, topic):
    barnabas("produce", topic, stdin="a\nb\nc\nd\n")
    group = f"group-of-{topic}"
    assert barnabas("consume", topic, "-g", group, "--from-beginning", "-n", 3).lines == ["a", "b", "c"]
    assert barnabas("consume", topic, "-g", group, "-n", 1, "--timeout", 10).lines == ["d"]


def test_too_few_records_in_time_is_a_failure(barnabas, topic):
    barnabas("produce", topic, stdin="a\n")
    outcome = barnabas("consume", topic, "--from-beginning", "-n", 2, "--timeout", 3, code=1)
    assert outcome.lines == ["a"]
    assert "only 1 of 2 records came" in outcome.err


def test_silence_without_a_count_is_an_end(barnabas, topic):
    barnabas("produce", topic, stdin="a\n")
    assert barnabas("consume", topic, "--from-beginning", "--timeout", 3).lines == ["a"]


def test_a_missing_topic_is_said_when_reading_and_made_when_writing(barnabas, topic):
    assert "there is no topic missing-one" in barnabas("consume", "missing-one", "-e", code=1).err
    barnabas("produce", f"{topic}-made", stdin="a\n")
    assert barnabas("consume", f"{topic}-made", "-e").lines == ["a"]


def test_a_line_that_is_no_record_is_named(barnabas, topic):
    err = barnabas("produce", topic, "--json", stdin='{"value": "a"}\nnonsense\n', code=1).err
    assert err.startswith("Error: line 2 is not JSON")
    assert "at least" in barnabas("produce", topic, "--json", stdin='{"key": "a"}\n', code=1).err
    assert (
        '"partition"'
        in barnabas("produce", topic, "--json", stdin='{"value": 1, "partition": "x"}', code=1).err
    )


def test_a_record_that_is_too_large_is_a_failure(barnabas, topic):
    barnabas("topics", "alter", topic, "--config", "max.message.bytes=1000")
    assert "MESSAGE_TOO_LARGE" in barnabas("produce", topic, stdin="x" * 5000, code=1).err


def test_a_partition_that_is_not_there_is_said(barnabas, topic):
    assert "no such partition" in barnabas("produce", topic, "-p", 9, stdin="a\n", code=1).err
    assert "no such partitions" in barnabas("consume", topic, "-p", 9, "-e", code=2).err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce", "t", "--json", "--raw"], "take one"),
        (["produce", "t", "--key", "a", "-K", ":"], "take one"),
        (["consume", "t", "--json", "--raw"], "take one"),
        (["consume", "t", "--since", "1h", "--offset", "3"], "take one"),
        (["consume", "t", "--since", "soon"], "--since soon"),
        (["consume", "t", "--group", "g", "--offset", "1"], "reset-offsets"),
        (["consume", "t", "--group", "g", "--until-end"], "--timeout"),
        (["consume", "t", "--partition", "x"], "for example 0,2"),
        (["consume", "t", "--format", "{nothing}"], "no field {nothing}"),
        (["consume", "t", "--format", "{"], "--format {"),
    ],
)
def test_what_contradicts_itself_is_wrong_usage(barnabas, arguments, words):
    assert words in barnabas(*arguments, code=2).err
