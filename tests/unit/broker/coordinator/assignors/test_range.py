"""The range assignor: consecutive partitions of a topic for each member."""

from __future__ import annotations

from barnabas.broker.coordinator.groups.assignors import ASSIGNORS, MemberSpec, TopicSpec

range_assignor = ASSIGNORS["range"]


def member(*topics: str, instance: str | None = None) -> MemberSpec:
    return MemberSpec(frozenset(topics), instance, None, {})


def test_longer_runs_come_first():
    targets = range_assignor({"a": member("t"), "b": member("t"), "c": member("t")}, {"t": TopicSpec(8)})
    assert targets == {"a": {"t": {0, 1, 2}}, "b": {"t": {3, 4, 5}}, "c": {"t": {6, 7}}}


def test_a_member_too_many_is_idle():
    targets = range_assignor({id: member("t") for id in "abcd"}, {"t": TopicSpec(3)})
    assert targets == {"a": {"t": {0}}, "b": {"t": {1}}, "c": {"t": {2}}, "d": {}}


def test_topics_with_equally_many_partitions_are_co_partitioned():
    members = {id: member("left", "right") for id in "abc"}
    targets = range_assignor(members, {"left": TopicSpec(7), "right": TopicSpec(7)})
    for target in targets.values():
        assert target["left"] == target["right"]


def test_only_subscribers_count():
    members = {"a": member("t"), "b": member("t", "u"), "c": member("u")}
    targets = range_assignor(members, {"t": TopicSpec(2), "u": TopicSpec(2)})
    assert targets == {"a": {"t": {0}}, "b": {"t": {1}, "u": {0}}, "c": {"u": {1}}}


def test_static_members_come_first_and_keep_their_place_under_a_new_id():
    members = {"a": member("t"), "x": member("t", instance="2"), "y": member("t", instance="1")}
    targets = range_assignor(members, {"t": TopicSpec(3)})
    assert targets == {"y": {"t": {0}}, "x": {"t": {1}}, "a": {"t": {2}}}
    members["0"] = members.pop("x")
    assert range_assignor(members, {"t": TopicSpec(3)})["0"] == {"t": {1}}


def test_a_topic_that_does_not_exist_is_left_out():
    assert range_assignor({"a": member("t", "gone")}, {"t": TopicSpec(1)}) == {"a": {"t": {0}}}


def test_an_empty_group_has_no_targets():
    assert range_assignor({}, {"t": TopicSpec(1)}) == {}
