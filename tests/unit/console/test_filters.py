"""Filters of records."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.console.filters import MAX_CHARS, Candidate, FilterError, parse

RECORD = Candidate(
    partition=3,
    offset=42,
    timestamp=1_700_000_000_000,
    key="user-7",
    value={"order": {"total": 120.5, "lines": [{"sku": "a"}, {"sku": "b"}]}, "paid": True, "note": None},
    headers={"source": "shop", "x.y": "dotted"},
)


@pytest.mark.parametrize(
    "text",
    [
        "offset == 42",
        "partition != 2 && offset >= 42",
        'key ~ "^user-[0-9]+$"',
        r'key ~ "^user-\\d+$"',
        "key contains 'ser'",
        "value.order.total > 100",
        "value.order.lines[1].sku == 'b'",
        "value.paid == true && value.note == null && value.nothing == null",
        "header.source == \"shop\" && header.x.y == 'dotted'",
        "!(offset < 10 || partition == 9)",
        "offset == 1 || offset == 42 && partition == 3",
        "value.order contains 'total'",
        "timestamp > 1.6e12",
        r'key == "user\-7"',
    ],
)
def test_filters_that_pass(text):
    assert parse(text)(RECORD)


@pytest.mark.parametrize(
    "text",
    [
        "offset > 42",
        "value.order.total == '120.5'",
        "value.order.lines[9].sku == 'b'",
        "key > 5",
        "value ~ 'x'",
        "key contains 7.5",
        "header.other == 'shop'",
        "!(offset == 42)",
    ],
)
def test_filters_that_do_not(text):
    assert not parse(text)(RECORD)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "expected one of key"),
        ("offset", "'the end' at 7: expected one of =="),
        ("offset = 1", "'= 1' at 8 is not understood"),
        ("offset == ", 'expected a "text"'),
        ("__import__ == 1", "expected one of key"),
        ("value.a == 1 2", "'2' at 14"),
        ("(offset == 1", "expected )"),
        ("header == 1", "header.source"),
        ("key ~ '('", "RE2"),
        ("key ~ 5", "quotation marks"),
        ("!" * 60 + "offset == 1", "nested more than 50"),
        ("(" * 60 + "offset == 1", "nested more than 50"),
        ("x" * (MAX_CHARS + 1), "at most"),
    ],
)
def test_what_is_no_filter_says_where(text, why):
    with pytest.raises(FilterError) as error:
        parse(text)
    assert why in str(error.value)


@given(st.text(max_size=60))
def test_any_text_is_a_filter_or_an_error(text):
    with suppress(FilterError):
        parse(text)(RECORD)
