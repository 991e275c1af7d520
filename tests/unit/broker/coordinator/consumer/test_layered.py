"""A layer of changes above a mapping is equal to a changed copy of the mapping."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinator.groups.modern.layered import Layered

KEYS = st.integers(0, 6)
CHANGES = st.lists(
    st.one_of(
        st.tuples(st.just("set"), KEYS, st.integers()),
        st.tuples(st.just("delete"), KEYS, st.none()),
        st.tuples(st.just("pop"), KEYS, st.none()),
        st.tuples(st.just("update"), KEYS, st.integers()),
    )
)


@given(st.dictionaries(KEYS, st.integers()), CHANGES)
def test_it_is_a_changed_copy(below, changes):
    before = dict(below)
    layered, copy = Layered(below), dict(below)
    for what, key, value in changes:
        for each in (layered, copy):
            if what == "set":
                each[key] = value
            elif what == "update":
                each.update({key: value, key + 1: value})
            elif what == "pop":
                each.pop(key, None)
            elif key in each:
                del each[key]
        assert list(layered.items()) == list(copy.items())
        assert len(layered) == len(copy)
        assert [layered.get(each) for each in range(8)] == [copy.get(each) for each in range(8)]
    assert list(below.items()) == list(before.items())
    assert dict(layered) == copy


@pytest.mark.parametrize("act", [lambda each: each[1], lambda each: each.__delitem__(1)])
def test_a_key_that_was_removed_is_not_there(act):
    layered = Layered({1: 2})
    del layered[1]
    with pytest.raises(KeyError):
        act(layered)
