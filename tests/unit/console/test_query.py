"""Parameters in the URLs of the console."""

from __future__ import annotations

import pytest

from barnabas.console.pages.query import QueryError, numbers


def test_numbers_and_ranges_give_their_numbers():
    assert numbers({"partitions": "0-3,7,5-5"}, "partitions") == [0, 1, 2, 3, 7, 5]


@pytest.mark.parametrize("text", ["5-3", "0,5-3", "10-9"])
def test_a_reversed_range_is_refused(text):
    with pytest.raises(QueryError, match=f"partitions={text}: write numbers and ranges"):
        numbers({"partitions": text}, "partitions")
