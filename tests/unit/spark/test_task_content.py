"""The digest of a task's rows, which distinguishes them from others."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.spark.task_content import KeysContent, TaskContent

texts = st.one_of(st.none(), st.text(max_size=5))
rows = st.lists(st.tuples(texts, texts), max_size=20)
SCHEMA = pa.schema([("key", pa.string()), ("value", pa.string())])


def content(some: list[tuple[str | None, str | None]], cut: int = 3) -> TaskContent:
    made = TaskContent()
    batch = pa.RecordBatch.from_pylist([{"key": key, "value": value} for key, value in some], SCHEMA)
    list(made.of((batch.slice(start, cut) for start in range(0, len(some), cut)), "t"))
    return made


def keys_content(keys: list[str | None], made: KeysContent) -> KeysContent:
    list(made.of(iter([pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.string())})]), "t"))
    return made


@given(rows, st.randoms(), st.integers(1, 9))
def test_neither_order_nor_batches_tell(
    some: list[tuple[str | None, str | None]], chance: object, cut: int
) -> None:
    shuffled = list(some)
    chance.shuffle(shuffled)
    assert content(some).difference(content(shuffled, cut)) is None


@given(rows, rows)
def test_any_other_rows_tell(
    some: list[tuple[str | None, str | None]], others: list[tuple[str | None, str | None]]
) -> None:
    is_same = sorted(map(repr, some)) == sorted(map(repr, others))
    assert (content(some).difference(content(others)) is None) == is_same


@given(rows)
def test_it_comes_back_from_text_as_it_went(some: list[tuple[str | None, str | None]]) -> None:
    assert TaskContent.parse(str(content(some))) == content(some)


def test_text_and_bytes_are_the_same_record() -> None:
    noted = []
    for kind in (pa.string(), pa.binary(), pa.large_string(), pa.large_binary()):
        made = TaskContent()
        list(made.of(iter([pa.RecordBatch.from_arrays([pa.array(["v"]).cast(kind)], ["value"])]), "t"))
        noted.append(made)
    assert noted == [noted[0]] * 4


@pytest.mark.parametrize(
    ("column", "values"), [("topic", ["a", "b"]), ("partition", [0, 1]), ("headers", [[], None])]
)
def test_the_other_columns_tell_too(column: str, values: list[object]) -> None:
    noted = []
    for value in values:
        made = TaskContent()
        headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
        kind = {"topic": pa.string(), "partition": pa.int32(), "headers": headers}[column]
        given_rows = [pa.array(["v"]), pa.array([value], kind)]
        list(made.of(iter([pa.RecordBatch.from_arrays(given_rows, ["value", column])]), None))
        noted.append(made)
    # a record without headers has none, whichever way its row says so
    assert (noted[0] == noted[1]) == (column == "headers")


def test_a_topic_for_all_rows_is_as_one_that_each_row_names() -> None:
    named, by_option = TaskContent(), TaskContent()
    list(named.of(iter([pa.RecordBatch.from_pydict({"value": ["v"], "topic": ["t"]})]), None))
    list(by_option.of(iter([pa.RecordBatch.from_pydict({"value": ["v"], "topic": ["x"]})]), "t"))
    assert named == by_option


def test_rows_of_the_last_release_are_told_by_number_and_keys() -> None:
    old = KeysContent.parse(str(keys_content(["a", "b"], KeysContent())))
    assert old is not None
    assert old.difference(keys_content(["b", "a"], old.empty())) is None
    assert "other keys" in (old.difference(keys_content(["a", "c"], old.empty())) or "")
    assert "2 rows and now has 3" in (old.difference(keys_content(["a", "b", "b"], old.empty())) or "")


def test_what_was_written_before_keys_were_noted_is_told_by_its_number() -> None:
    old = KeysContent.parse("rows=2")
    assert old is not None
    assert old.difference(keys_content(["a", "b"], old.empty())) is None
    assert old.difference(keys_content(["a"], old.empty())) == "was written with 2 rows and now has 1"


@pytest.mark.parametrize("text", ["", "rows=", "rows=2 keys=1", "rows=2 content=1", "ours"])
def test_another_text_is_none(text: str) -> None:
    assert TaskContent.parse(text) is None
    assert KeysContent.parse(text) is None
