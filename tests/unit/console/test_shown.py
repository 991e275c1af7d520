"""The bytes of records as text for people."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.shown import MAX_SHOWN, compared, masked, shown, visible


@pytest.mark.parametrize(
    ("data", "how", "expected"),
    [
        (None, "auto", {"is": "null"}),
        (b"", "auto", {"is": "text", "bytes": 0, "text": ""}),
        (b"plain", "auto", {"is": "text", "bytes": 5, "text": "plain"}),
        (b'{"a":1}', "auto", {"is": "json", "bytes": 7, "text": '{"a": 1}'}),
        (b'{"a":1}', "text", {"is": "text", "bytes": 7, "text": '{"a":1}'}),
        (b"{broken", "json", {"is": "text", "bytes": 7, "text": "{broken"}),
        (b"\xff\x00", "auto", {"is": "hex", "bytes": 2, "text": "ff 00"}),
        (b"ab", "hex", {"is": "hex", "bytes": 2, "text": "61 62"}),
        (b"\xff", "text", {"is": "text", "bytes": 1, "text": "\\xff"}),
        ("a\u202eb\0".encode(), "text", {"is": "text", "bytes": 6, "text": "a\\u202eb\\u0000"}),
    ],
)
def test_how_bytes_are_shown(data, how, expected):
    assert shown(data, how) == expected


def test_what_a_schema_says_comes_first():
    assert shown(b"\0raw", decode=lambda data: ("avro", 7, {"n": 1})) == {
        "is": "avro",
        "schema": 7,
        "bytes": 4,
        "text": '{"n": 1}',
    }


@pytest.mark.parametrize("how", ["auto", "text", "hex", "json"])
def test_long_values_are_cut_and_say_so(how):
    told = shown(b"x" * (MAX_SHOWN + 1), how)
    assert told["cut"] and len(told["text"]) <= MAX_SHOWN and told["bytes"] == MAX_SHOWN + 1


def test_deep_json_is_shown_as_text_or_said_to_be_too_deep():
    assert shown(b"[" * 50_000 + b"]" * 50_000)["bytes"] == 100_000


def test_masks_reach_into_lists_and_leave_the_rest():
    value = {"cards": [{"n": 1, "b": 2}, {"n": 3}], "n": 9}
    assert masked(value, [["cards", "n"]]) == {"cards": [{"n": "***", "b": 2}, {"n": "***"}], "n": 9}
    assert masked(value, [["none", "x"]]) == value


@pytest.mark.parametrize("data", [b'{"card": {"n": 1}}', b"\0 of a schema"])
def test_masked_values_say_so_and_others_do_not(data):
    def decode(given):
        return ("avro", 7, {"card": {"n": 1}}) if given.startswith(b"\0") else None

    assert shown(data, decode=decode, masks=[["card", "n"]])["masked"]
    assert "masked" not in shown(data, decode=decode, masks=[["card", "other"]])
    assert "masked" not in shown(data, decode=decode)


@given(st.binary(max_size=200), st.sampled_from(["auto", "text", "hex", "json"]))
def test_anything_can_be_shown_and_nothing_of_it_moves_other_text(data, how):
    text = shown(data, how)["text"]
    assert not {unicodedata.category(c) for c in text if c not in "\n\t"} & {
        "Cc",
        "Cf",
        "Cs",
        "Co",
        "Zl",
        "Zp",
    }


@given(st.recursive(st.none() | st.integers() | st.text(), lambda inner: st.dictionaries(st.text(), inner)))
def test_no_mask_lets_its_value_through(value):
    secret = {"a": {"secret": "s3cr3t-value"}, "other": value}
    data = json.dumps(secret).encode()
    for how in ("auto", "text", "hex", "json"):
        assert "s3cr3t-value" not in shown(data, how, masks=[["a", "secret"]]).get("text", "")
    assert "s3cr3t-value" not in str(compared(data, masks=[["a", "secret"]]))


@given(st.text())
def test_visible_text_can_be_told_apart_from_what_it_hides(text):
    assert visible(text) == text or "\\" in visible(text)
