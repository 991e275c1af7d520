"""Records as JSON lines and in templates."""

import json

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.cli.record_format import Template, from_json, iso_time, to_json
from barnabas.client.record import Record

RECORD = Record("t", 2, 7, 1_700_000_000_123, b"k", b"v", (("h", b"1"), ("n", None)))

data = st.none() | st.binary(max_size=20) | st.text(max_size=20).map(str.encode)


@given(
    key=data,
    value=data,
    headers=st.lists(st.tuples(st.text(max_size=5), data), max_size=3),
    timestamp=st.integers(1, 2**53),
)
def test_every_record_makes_the_round_trip_through_json(key, value, headers, timestamp):
    line = to_json(Record("t", 1, 5, timestamp, key, value, tuple(headers)))
    assert "\n" not in line
    outgoing = from_json(line.encode())
    assert (outgoing.key, outgoing.value, list(outgoing.headers)) == (key, value, headers)
    assert (outgoing.partition, outgoing.timestamp_ms) == (1, timestamp)


def test_values_that_are_no_text_are_sent_as_json():
    assert from_json(b'{"value": {"a": [1, null]}}').value == b'{"a": [1, null]}'
    assert from_json(b'{"value": 7, "key": 8}')[:2] == (b"7", b"8")


def test_headers_may_be_an_object():
    assert from_json(b'{"value": "v", "headers": {"a": "b"}}').headers == (("a", b"b"),)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("nonsense", "not JSON"),
        ("[1]", 'at least "value"'),
        ('{"key": "k"}', 'at least "value"'),
        ('{"value": "v", "partition": "0"}', '"partition" must be a whole number'),
        ('{"value": "v", "timestamp": 1.5}', '"timestamp" must be a whole number'),
        ('{"value": "v", "headers": 7}', '"headers" must be'),
        ('{"value": "v", "headers": [["a"]]}', '"headers" must be'),
        ('{"value": "v", "headers": [[1, "a"]]}', '"headers" must be'),
        ('{"value": "v", "partition": true}', '"partition" must be a whole number'),
        ('{"value": "v", "partition": -1}', "between 0 and 2147483647"),
        ('{"value": "v", "partition": 2147483648}', "between 0 and 2147483647"),
        ('{"value": "v", "timestamp": 0}', "between 1 and"),
        ('{"value": "v", "timestamp": 9223372036854775808}', "between 1 and"),
        ('{"value": {"base64": "?"}}', 'the base64 of "value"'),
        ('{"value": {"base64": 7}}', 'the base64 of "value"'),
        ('{"value": "v", "key": "\\ud800"}', '"key" has half a surrogate pair'),
        ('{"value": "v", "headers": {"\\ud800": "v"}}', '"headers" has half a surrogate pair'),
        ('{"value": ' + "[" * 100_000, "nested too deeply"),
    ],
)
def test_lines_that_are_no_record_say_what_is_wrong(line, words):
    with pytest.raises(ValueError, match=words):
        from_json(line.encode())


def test_a_line_that_is_not_utf_8_says_where():
    with pytest.raises(ValueError, match="not UTF-8: byte 12 is 0xff"):
        from_json(b'{"value": "\xff"}')


def test_a_mark_at_the_beginning_of_a_file_does_no_harm():
    assert from_json(b'\xef\xbb\xbf{"value": "v"}').value == b"v"


def test_a_template_is_filled_with_every_field():
    template = Template(r"{topic} {partition} {offset} {timestamp} {time} {key} {value} {headers}\t|\n")
    assert template.fill(RECORD) == "t 2 7 1700000000123 2023-11-14T22:13:20.123Z k v h=1,n=\t|\n"


def test_a_template_is_empty_where_the_record_is():
    assert Template("{key}|{value}|{time}").fill(Record("t", 0, 0, None, None, None)) == "||"


@pytest.mark.parametrize("text", ["{nope}", "{", "{}", "{0}"])
def test_a_template_that_makes_no_sense_is_wrong_usage(text):
    with pytest.raises(click.UsageError):
        Template(text)


def test_times_are_utc():
    assert iso_time(0) == "1970-01-01T00:00:00.000Z"
    assert iso_time(None) == ""
    assert iso_time(2**62) == str(2**62)


def test_json_of_a_record_names_everything():
    assert json.loads(to_json(RECORD)) == {
        "topic": "t",
        "partition": 2,
        "offset": 7,
        "timestamp": 1_700_000_000_123,
        "key": "k",
        "value": "v",
        "headers": [["h", "1"], ["n", None]],
    }
