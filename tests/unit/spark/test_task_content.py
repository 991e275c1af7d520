"""Rows of a task, told from others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.task_content import TaskContent

keys = st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=20)


def content(keys: list[str | None], cut: int = 3) -> TaskContent:
    made = TaskContent()
    batch = pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.string()), "value": ["v"] * len(keys)})
    list(made.of(batch.slice(start, cut) for start in range(0, len(keys), cut)))
    return made


@given(keys, st.randoms(), st.integers(1, 9))
def test_neither_order_nor_batches_tell(some: list[str | None], chance: object, cut: int) -> None:
    shuffled = list(some)
    chance.shuffle(shuffled)
    assert content(some).difference(content(shuffled, cut)) is None


@given(keys)
def test_it_comes_back_from_text_as_it_went(some: list[str | None]) -> None:
    assert TaskContent.parse(str(content(some))) == content(some)


def test_a_key_that_is_another_tells() -> None:
    assert "other keys" in (content(["a", "b"]).difference(content(["a", "c"])) or "")
    assert "2 rows and now has 3" in (content(["a", "b"]).difference(content(["a", "b", "b"])) or "")


def test_what_was_written_before_keys_were_noted_is_told_by_its_number() -> None:
    old = TaskContent.parse("rows=2")
    assert old is not None
    assert old.difference(content(["a", "b"])) is None
    assert old.difference(content(["a"])) == "was written with 2 rows and now has 1"


@pytest.mark.parametrize("text", ["", "rows=", "rows=2 keys=1", "ours"])
def test_another_text_is_none(text: str) -> None:
    assert TaskContent.parse(text) is None
