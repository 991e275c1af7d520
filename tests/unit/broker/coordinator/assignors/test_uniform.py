"""Uniform assignments. They must be balanced first, then sticky, then in the racks of members."""

from __future__ import annotations

import time

import pytest

from barnabas.broker.coordinator.groups.assignors import ASSIGNORS, MemberSpec, TopicSpec

uniform = ASSIGNORS["uniform"]


def member(*topics: str, rack: str | None = None, **assigned: set[int]) -> MemberSpec:
    had = {topic: frozenset(partitions) for topic, partitions in assigned.items()}
    return MemberSpec(frozenset(topics), None, rack, had)


def test_topics_are_dealt_out_as_one():
    """The range assignor would give the third member no partition."""
    targets = uniform({id: member("t", "u", "v") for id in "abc"}, {name: TopicSpec(2) for name in "tuv"})
    assert targets == {"a": {"t": {0, 1}}, "b": {"u": {0, 1}}, "c": {"v": {0, 1}}}


def test_a_newcomer_gets_its_share_and_nothing_else_moves():
    members = {"a": member("t", t={0, 2, 4}), "b": member("t", t={1, 3, 5}), "c": member("t")}
    targets = uniform(members, {"t": TopicSpec(6)})
    assert targets == {"a": {"t": {0, 2}}, "b": {"t": {1, 3}}, "c": {"t": {4, 5}}}


def test_what_a_leaver_had_fills_up_the_others():
    members = {"a": member("t", t={0, 2}), "c": member("t", t={4, 5})}
    targets = uniform(members, {"t": TopicSpec(6)})
    assert targets == {"a": {"t": {0, 1, 2}}, "c": {"t": {3, 4, 5}}}


def test_who_has_one_more_keeps_it():
    members = {"a": member("t", t={0}), "b": member("t", t={1, 2}), "c": member("t", t={3})}
    targets = uniform(members, {"t": TopicSpec(4)})
    assert all(targets[id] is spec.assigned for id, spec in members.items())


def test_a_member_too_many_is_idle():
    targets = uniform({id: member("t") for id in "abcd"}, {"t": TopicSpec(3)})
    assert sorted(len(target) for target in targets.values()) == [0, 1, 1, 1]


def test_partitions_that_are_no_more_are_forgotten():
    members = {"a": member("t", t={0, 7}, gone={0}), "b": member("t", t={1, 8})}
    assert uniform(members, {"t": TopicSpec(2)}) == {"a": {"t": {0}}, "b": {"t": {1}}}


def test_a_partition_that_two_claim_goes_to_one():
    """This happens after the upgrade of a group whose members assigned partitions themselves."""
    members = {"a": member("t", t={0, 1}), "b": member("t", t={0, 1})}
    assert uniform(members, {"t": TopicSpec(2)}) == {"a": {"t": {0}}, "b": {"t": {1}}}


def test_different_subscriptions_are_balanced_as_far_as_they_allow():
    members = {"a": member("t"), "b": member("t", "u"), "c": member("u")}
    targets = uniform(members, {"t": TopicSpec(8), "u": TopicSpec(1)})
    assert {id: sum(map(len, target.values())) for id, target in targets.items()} == {"a": 4, "b": 4, "c": 1}


def test_a_new_subscription_takes_from_those_with_the_most():
    members = {
        "a": member("t", t={0, 1, 2, 3}),
        "b": member("t", "u", t={4, 5}, u={0, 1}),
        "c": member("t", "u"),
    }
    targets = uniform(members, {"t": TopicSpec(6), "u": TopicSpec(2)})
    assert {id: sum(map(len, target.values())) for id, target in targets.items()} == {"a": 3, "b": 3, "c": 2}


def test_a_member_in_the_rack_of_a_replica_comes_first():
    racks = tuple(frozenset({rack}) for rack in ("south", "north", "south", "north"))
    members = {"a": member("t", rack="north"), "b": member("t", rack="south")}
    assert uniform(members, {"t": TopicSpec(4, racks)}) == {"a": {"t": {1, 3}}, "b": {"t": {0, 2}}}
    alone = {"a": member("t", rack="north", t={0, 1, 2, 3}), "b": member("t", rack="south")}
    assert uniform(alone, {"t": TopicSpec(4, racks)}) == {"a": {"t": {1, 3}}, "b": {"t": {0, 2}}}


@pytest.mark.parametrize("name", ASSIGNORS)
@pytest.mark.parametrize("topic_count", [1, 100, 1000])
@pytest.mark.parametrize("equal", [True, False], ids=["equal", "different"])
def test_a_thousand_members_and_ten_thousand_partitions_take_a_moment(name, topic_count, equal):
    topics = {f"topic-{n}": TopicSpec(10_000 // topic_count) for n in range(topic_count)}
    every, half = frozenset(topics), frozenset(list(topics)[: max(1, topic_count // 2)])
    members = {
        f"member-{n}": MemberSpec(every if equal or n % 2 else half, None, None, {}) for n in range(1000)
    }
    started = time.thread_time()
    ASSIGNORS[name](members, topics)
    # it takes up to half a second; CPU time, too, is several times as long on a machine that others use
    assert time.thread_time() - started < 10
