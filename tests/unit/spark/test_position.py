"""The position of a stream, in its checkpoint's format."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.types import TopicPartition
from barnabas.spark.plan import Plan
from barnabas.spark.position import Position

topics = st.sampled_from(["a", "b", "id", "0"])
partitions = st.builds(TopicPartition, topics, st.integers(0, 20))
offsets = st.dictionaries(partitions, st.integers(0, 10**12), max_size=8)
plans = st.builds(
    Plan, st.integers(1, 99), st.none() | st.integers(1, 99), st.none() | st.integers(1, 99), offsets
)
positions = st.builds(
    lambda offsets, ids, plan: Position(
        offsets, {name: ids[name] for name in ids if name in topics_of(offsets)}, plan
    ),
    offsets,
    st.dictionaries(topics, st.sampled_from(["Zm9v", "YmFy"])),
    st.none() | plans,
)


def topics_of(offsets: dict[TopicPartition, int]) -> set[str]:
    return {tp.topic for tp in offsets}


@given(positions)
def test_a_position_comes_back_from_a_checkpoint_as_it_went(some: Position) -> None:
    assert Position.from_json(json.loads(json.dumps(some.to_json()))) == some


def test_a_checkpoint_of_before_topics_had_ids_is_read() -> None:
    position = Position.from_json({"a": {"0": 5, "1": 7}})
    assert position == Position({TopicPartition("a", 0): 5, TopicPartition("a", 1): 7})
    assert position.to_json() == {"a": {"0": 5, "1": 7}}
    assert not position.was_recreated("a", {"a": "Zm9v"})


def test_a_topic_is_made_anew_when_its_id_is_known_to_be_another() -> None:
    position = Position({TopicPartition("a", 0): 5}, {"a": "Zm9v"})
    assert position.was_recreated("a", {"a": "YmFy"})
    assert not position.was_recreated("a", {"a": "Zm9v"})
    assert not position.was_recreated("a", {}), "nobody says so just now"


@pytest.mark.parametrize("foreign", [{"a": {"x": 5}}, {"a": {"0": "five"}}])
def test_what_is_no_position_is_refused(foreign: dict[str, dict[str, int | str]]) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        Position.from_json(foreign)
