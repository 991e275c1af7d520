"""Assignors of the coordinator in random groups whose members join, leave and change their subscriptions.

BARNABAS_THOROUGH=1 runs many more examples.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from tests.effort import examples

from barnabas.broker.coordinator.groups.assignors import ASSIGNORS, Assignment, MemberSpec, TopicSpec

EXAMPLES = settings(max_examples=examples(60, 2000), deadline=None)

NAMES = ["a", "b", "c", "d"]
RACKS = ["north", "south", "west"]

topic_specs = st.integers(0, 12).flatmap(
    lambda partitions: st.builds(
        TopicSpec,
        st.just(partitions),
        st.just(()) | st.tuples(*[st.frozensets(st.sampled_from(RACKS), min_size=1)] * partitions),
    )
)
clusters = st.dictionaries(st.sampled_from(NAMES), topic_specs, min_size=1)
subscriptions = st.frozensets(st.sampled_from([*NAMES, "not there"]))
instances = st.none() | st.sampled_from(["1", "2", "3"])
#: what a member may claim to have: nothing, or anything at all
claims = st.just({}) | st.dictionaries(
    st.sampled_from([*NAMES, "not there"]), st.frozensets(st.integers(0, 15), min_size=1)
)
groups = st.dictionaries(
    st.sampled_from("klmnopqrst"),
    st.builds(MemberSpec, subscriptions, instances, st.none() | st.sampled_from(RACKS), claims),
)
assignors = pytest.mark.parametrize("assignor", ASSIGNORS.values(), ids=ASSIGNORS)

Members = Mapping[str, MemberSpec]
Topics = Mapping[str, TopicSpec]


def settled(name: str, members: Members, topics: Topics) -> dict[str, MemberSpec]:
    """Return the members after they have got their assignment."""
    targets = ASSIGNORS[name](members, topics)
    return {id: spec._replace(assigned=targets[id]) for id, spec in members.items()}


def counts(targets: Mapping[str, Assignment]) -> list[int]:
    return [sum(map(len, target.values())) for target in targets.values()]


def kept(members: Members, targets: Mapping[str, Assignment]) -> int:
    return sum(
        len(found & spec.assigned.get(topic, frozenset()))
        for id, spec in members.items()
        for topic, found in targets[id].items()
    )


@assignors
@EXAMPLES
@given(groups, clusters)
def test_every_partition_has_one_owner_and_that_is_a_subscriber(assignor, members, topics):
    targets = assignor(members, topics)
    assert targets.keys() == members.keys()
    owned = [(t, p) for target in targets.values() for t, found in target.items() for p in found]
    subscribed = frozenset().union(*(spec.topics for spec in members.values()))
    assert sorted(owned) == [
        (t, p) for t in sorted(subscribed & topics.keys()) for p in range(topics[t].partitions)
    ]
    for id, target in targets.items():
        assert target.keys() <= members[id].topics
        assert all(target.values()), "a topic of which a member has nothing is left out"


@assignors
@EXAMPLES
@given(groups, clusters, st.randoms(use_true_random=False))
def test_the_order_of_the_arguments_makes_no_difference(assignor, members, topics, rng):
    shuffled = list(members)
    rng.shuffle(shuffled)
    again = assignor({id: members[id] for id in shuffled}, dict(reversed(topics.items())))
    assert again == assignor(members, topics)


@pytest.mark.parametrize("name", ASSIGNORS)
@EXAMPLES
@given(groups, clusters, subscriptions)
def test_who_has_its_target_keeps_it(name, members, topics, common):
    members = {id: spec._replace(topics=common) for id, spec in members.items()}
    members = settled(name, members, topics)
    again = ASSIGNORS[name](members, topics)
    assert again == {id: spec.assigned for id, spec in members.items()}


@EXAMPLES
@given(groups, clusters, subscriptions)
def test_uniform_is_level_and_moves_no_more_than_that_needs(members, topics, common):
    members = {id: spec._replace(topics=common) for id, spec in members.items()}
    assume(members)
    before = settled("uniform", {id: spec._replace(assigned={}) for id, spec in members.items()}, topics)
    # Some leave, with what they have, and others come.
    staying = {id: spec for id, spec in before.items() if id > "n"}
    coming = {id.upper(): members[id] for id in before if id in "klo"}
    now = {**staying, **{id: spec._replace(assigned={}) for id, spec in coming.items()}}
    assume(now)
    targets = ASSIGNORS["uniform"](now, topics)
    found = counts(targets)
    assert max(found) - min(found) <= 1
    # The most that can stay: each keeps up to its share, and as many as there are extras one more.
    share, extras = divmod(sum(found), len(found))
    had = [sum(map(len, spec.assigned.values())) for spec in now.values()]
    can_stay = sum(min(count, share) for count in had) + min(extras, sum(count > share for count in had))
    assert kept(now, targets) == can_stay


@EXAMPLES
@given(groups, clusters)
def test_uniform_is_level_among_those_who_share_their_topics_with_nobody_else(members, topics):
    halves = [frozenset(NAMES[:2]), frozenset(NAMES[2:])]
    members = {id: spec._replace(topics=halves[ord(id) % 2]) for id, spec in members.items()}
    targets = ASSIGNORS["uniform"](members, topics)
    for half in halves:
        found = counts({id: target for id, target in targets.items() if members[id].topics == half})
        assert not found or max(found) - min(found) <= 1


@EXAMPLES
@given(groups, clusters)
def test_racks_change_neither_counts_nor_how_much_moves(members, topics):
    blind = {id: spec._replace(rack_id=None) for id, spec in members.items()}
    targets, without = ASSIGNORS["uniform"](members, topics), ASSIGNORS["uniform"](blind, topics)
    assert counts(targets) == counts(without)
    assert kept(members, targets) == kept(members, without)
