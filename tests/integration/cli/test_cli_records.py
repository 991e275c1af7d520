"""`barnabas produce` and `barnabas consume` against a broker."""

import json
import random
import re
import time

import pytest

from barnabas.base.types import TopicPartition
from barnabas.cli.record_format import from_json


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
    assert barnabas("consume", topic, "-g", group, "-n", 1, "--timeout", 60).lines == ["d"]


def test_too_few_records_in_time_is_a_failure(barnabas, topic):
    barnabas("produce", topic, stdin="a\n")
    outcome = barnabas("consume", topic, "--from-beginning", "-n", 2, "--timeout", 6, code=1)
    assert outcome.lines == ["a"]
    assert "only 1 of 2 records came" in outcome.err


def test_silence_without_a_count_is_an_end(barnabas, topic):
    barnabas("produce", topic, stdin="a\n")
    assert barnabas("consume", topic, "--from-beginning", "--timeout", 6).lines == ["a"]


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


@pytest.fixture
def narrow(barnabas, topic):
    """Create a topic whose batches have at most 1,000 bytes."""
    barnabas("topics", "alter", topic, "--config", "max.message.bytes=1000")
    return topic


@pytest.mark.parametrize("form", [[], ["--json"], ["--raw"]])
def test_a_record_that_is_too_large_is_named_with_its_size_the_limit_and_the_cure(barnabas, narrow, form):
    record = json.dumps({"value": "x" * 5000}) if form == ["--json"] else "x" * 5000
    err = barnabas("produce", narrow, *form, stdin=f"a\n{record}" if not form else record, code=1).err
    assert "5,000 bytes" in err or "more than the 900 bytes" in err or "longer than 902 bytes" in err
    assert ("line 2" if not form else "line 1" if form == ["--json"] else "stdin") in err
    assert len(err.splitlines()) == 1


def test_the_setting_that_raises_the_limit_is_named(barnabas, narrow):
    err = barnabas("produce", narrow, "--key", "k" * 990, stdin="a\n", code=1).err
    assert "line 1 is a record of 991 bytes, and 900 is the limit" in err
    assert f"barnabas configs alter --topic {narrow} --set max.message.bytes=N" in err


def test_a_record_that_compression_does_not_make_small_enough_is_named(barnabas, narrow):
    noise = random.Random(0).randbytes(2000).hex()
    err = barnabas("produce", narrow, "--compression", "gzip", stdin=f"a\n{noise}\n", code=1).err
    assert "MESSAGE_TOO_LARGE: line 2" in err
    assert "max.message.bytes is 1,000" in err
    barnabas("produce", narrow, "--compression", "gzip", stdin="x" * 50_000)


def test_small_records_are_sent_in_batches_that_the_topic_takes(barnabas, narrow):
    text = "".join(f"{number:0300}\n" for number in range(50))
    barnabas("produce", narrow, stdin=text)
    assert barnabas("consume", narrow, "-e").out == text


def test_endless_input_is_not_read_into_memory(barnabas, topic):
    err = barnabas("produce", topic, stdin=b"\0" * 2_000_000, code=1).err
    assert "line 1 is longer than 1,048," in err


def test_a_refused_record_is_named(barnabas, topic):
    barnabas("topics", "alter", topic, "--config", "cleanup.policy=compact")
    assert (
        "INVALID_RECORD: line 1, or one sent with it: " in barnabas("produce", topic, stdin="a\n", code=1).err
    )


def test_a_partition_that_is_not_there_is_said(barnabas, topic):
    err = barnabas("produce", topic, "-p", 9, stdin="a\n", code=1).err
    assert err == f"Error: there is no partition 9: {topic} has partition 0 only\n"
    assert "no such partition, the last one is 0" in barnabas("consume", topic, "-p", "0,9", "-e", code=2).err


def test_a_copy_may_have_other_partitions_than_its_source(barnabas, topic):
    barnabas("topics", "create", f"{topic}-source", "--partitions", 5)
    for partition in range(5):
        barnabas("produce", f"{topic}-source", "-p", partition, "-k", "k", stdin=f"{partition}\n")
    copied = barnabas("consume", f"{topic}-source", "--json", "--until-end").out
    barnabas("produce", topic, "--json", stdin=copied)
    assert sorted(barnabas("consume", topic, "-e").lines) == ["0", "1", "2", "3", "4"]
    err = barnabas("produce", topic, "--json", "--keep-partitions", stdin=copied, code=1).err
    # which of the five partitions a consumer is given first is the broker's choice
    assert re.search(rf"^Error: line [12] is for partition [1-4]: {topic} has partition 0 only$", err, re.M)
    barnabas("topics", "create", f"{topic}-exact", "--partitions", 5)
    barnabas("produce", f"{topic}-exact", "--json", "--keep-partitions", stdin=copied)
    for partition in range(5):
        assert barnabas("consume", f"{topic}-exact", "-e", "-p", partition).lines == [str(partition)]


def test_bytes_of_every_kind_are_kept(barnabas, topic):
    lines = [b"\xff\xfe", b"a\0b", b"", b"\r", b"caf\xe9", b"\x1b[31m", b"last\r"]
    barnabas("produce", topic, "-K", ":", stdin=b"\n".join(b"k\xff\0:" + line for line in lines))
    records = [from_json(line.encode()) for line in barnabas("consume", topic, "-e", "--json").lines]
    assert [record.value for record in records] == [*lines[:3], b"", *lines[4:]]
    assert {record.key for record in records} == {b"k\xff\0"}


def test_headers_may_have_one_name(barnabas, topic):
    barnabas("produce", topic, "-H", "a=1", "-H", "a=2", stdin="x\n")
    record = json.loads(barnabas("consume", topic, "-e", "--json").out)
    assert record["headers"] == [["a", "1"], ["a", "2"]]


def test_an_offset_beyond_the_end_is_said(barnabas, topic):
    barnabas("produce", topic, stdin="a\nb\n")
    err = barnabas("consume", topic, "--offset", 3, "-e", code=1).err
    assert err == f"Error: --offset 3 is beyond the end: {topic}-0 ends at 2\n"
    assert barnabas("consume", topic, "--offset", 2, "-e").out == ""


def test_an_offset_that_some_partitions_do_not_have_is_said_for_each(barnabas, topic):
    name = f"{topic}-two"
    barnabas("topics", "create", name, "--partitions", 2)
    barnabas("produce", name, "-p", 0, stdin="a\nb\n")
    outcome = barnabas("consume", name, "--offset", 1, "-e")
    assert outcome.lines == ["b"]
    assert outcome.err == f"{name}-1 ends at 0: it is read from there, not from 1\n"


def test_an_offset_whose_record_was_deleted_is_said(barnabas, barnabas_broker, topic):
    barnabas("produce", topic, stdin="a\nb\nc\n")
    barnabas_broker.admin().delete_records({TopicPartition(topic, 0): 2})
    outcome = barnabas("consume", topic, "--offset", 1, "-e")
    assert outcome.lines == ["c"]
    assert outcome.err == f"{topic}-0 begins at 2: earlier records have been deleted\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["produce", "t", "--json", "--raw"], "choose"),
        (["produce", "t", "--key", "a", "-K", ":"], "choose"),
        (["consume", "t", "--json", "--raw"], "choose"),
        (["consume", "t", "--since", "1h", "--offset", "3"], "choose"),
        (["consume", "t", "--since", "soon"], "--since soon"),
        (["consume", "t", "--group", "g", "--offset", "1"], "reset-offsets"),
        (["consume", "t", "--group", "g", "--until-end"], "--timeout"),
        (["consume", "t", "--partition", "x"], "for example 0,2"),
        (["consume", "t", "--format", "{nothing}"], "no field {nothing}"),
        (["consume", "t", "--format", "{"], "--format {"),
        (["consume", "t", "t"], "the command names t twice"),
        (["consume", ""], "a name must not be empty"),
        (["consume", "t", "--group", ""], "a name must not be empty"),
        (["consume", "t", "--timeout", "-1"], "-1 is not a number from 0"),
        (["consume", "t", "--timeout", "nan"], "nan is not a number from 0"),
        (["consume", "t", "--offset", str(2**63)], "--offset"),
        (["consume", "t", "--partition", "-1"], "write numbers from 0 on"),
        (["consume", "t", "--partition", "0,0"], "names 0 twice"),
        (["consume", "t", "--since", "5y"], "write for example 90s"),
        (["consume", "t", "--set", "no.such=1"], "No such configuration property"),
        (["consume", "t", "--set", "group.id=g"], "use --group"),
        (["produce", "t", "--set", "linger.ms=soon"], "Invalid value"),
        (["produce", "t", "--set", "linger.ms=-5"], "outside allowed range"),
        (["produce", "t", "--set", "linger.ms=1", "--set", "linger.ms=2"], "--set sets linger.ms twice"),
        (["produce", "t", "--set", "bootstrap.servers=a:1"], "use --bootstrap-server"),
        (["produce", "t", "--partition", str(2**31)], "--partition"),
        (["produce", "t", "--key-separator", ""], "must not be empty"),
        (["produce", "t", "--keep-partitions"], "needs --json"),
        (["produce", "t", "--json", "--keep-partitions", "-p", "0"], "choose --partition or"),
        (["produce", "t", "--json", "--null-as", "x"], '{"value": null}'),
        (["produce", "t", "--acks", "0", "--report"], "--report needs"),
    ],
)
def test_what_contradicts_itself_is_wrong_usage(barnabas, arguments, words):
    assert words in barnabas(*arguments, code=2).err
