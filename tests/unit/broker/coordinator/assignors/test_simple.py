"""Assignments of share groups: first even, then balanced, then sticky."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.coordinator.groups.assignors.simple import ShareMemberSpec, assign

T, U, V = b"t" * 16, b"u" * 16, b"v" * 16


def member(*topics: bytes, assigned: dict[bytes, set[int]] | None = None) -> ShareMemberSpec:
    had = {topic: frozenset(numbers) for topic, numbers in (assigned or {}).items()}
    return ShareMemberSpec(frozenset(topics), had)


def partitions(**counts: int) -> dict[bytes, frozenset[int]]:
    return {name.encode() * 16: frozenset(range(count)) for name, count in counts.items()}


def test_members_with_fewer_than_the_partitions_have_them_to_themselves():
    targets = assign({id: member(T) for id in "abc"}, partitions(t=7))
    assert sorted(len(target[T]) for target in targets.values()) == [2, 2, 3]
    assert sorted(number for target in targets.values() for number in target[T]) == list(range(7))


def test_members_beyond_the_partitions_share_them_evenly():
    targets = assign({id: member(T) for id in "abcdef"}, partitions(t=2))
    assert [len(target[T]) for target in targets.values()] == [1] * 6
    assert sorted(number for target in targets.values() for number in target[T]) == [0, 0, 0, 1, 1, 1]


def test_each_partition_has_equally_many_members_even_if_some_members_get_two():
    targets = assign({id: member(T) for id in "abc"}, partitions(t=2))
    assert sorted(len(target[T]) for target in targets.values()) == [1, 1, 2]
    assert sorted(number for target in targets.values() for number in target[T]) == [0, 0, 1, 1]


def test_a_newcomer_gets_its_part_and_nothing_else_moves():
    before = {"a": {T: {0, 2, 4}}, "b": {T: {1, 3, 5}}}
    members = {id: member(T, assigned=had) for id, had in before.items()} | {"c": member(T)}
    targets = assign(members, partitions(t=6))
    assert len(targets["c"][T]) == 2
    for id, had in before.items():
        assert len(targets[id][T]) == 2 and targets[id][T] < had[T]


def test_a_member_whose_target_stays_has_the_same_object():
    members = {"a": member(T, assigned={T: {0}}), "b": member(T, assigned={T: {1}})}
    assert all(target is members[id].assigned for id, target in assign(members, partitions(t=2)).items())


def test_the_last_member_takes_what_all_others_leave():
    members = {"a": member(T, U, assigned={T: {0}})}
    assert assign(members, partitions(t=2, u=1)) == {"a": {T: {0, 1}, U: {0}}}


def test_a_topic_that_may_not_be_assigned_yet_is_given_to_nobody():
    assert assign({"a": member(T, U, assigned={V: {0}})}, partitions(t=1)) == {"a": {T: {0}}}
    assert assign({"a": member(U)}, partitions(t=1)) == {"a": {}}
    assert assign({}, partitions(t=1)) == {}


def test_different_subscriptions_are_balanced_topic_by_topic():
    members = {"a": member(T), "b": member(U), "c": member(T, U)}
    targets = assign(members, partitions(t=4, u=4))
    assert {id: {topic: len(found) for topic, found in target.items()} for id, target in targets.items()} == {
        "a": {T: 2},
        "b": {U: 2},
        "c": {T: 2, U: 2},
    }


def test_the_odd_partitions_of_different_topics_go_to_different_members():
    members = {"a": member(T, U), "b": member(T, U), "c": member(T, U, V)}
    targets = assign(members, partitions(t=3, u=3, v=1))
    assert [sum(map(len, targets[id].values())) for id in "ab"] == [2, 2]


topics = st.sampled_from([T, U, V])
subscriptions = st.frozensets(topics, max_size=3)
counts = st.dictionaries(topics, st.integers(0, 6), max_size=3)
assignments = st.dictionaries(topics, st.frozensets(st.integers(0, 7), min_size=1), max_size=3)


@st.composite
def groups(draw):
    same = draw(st.none() | subscriptions)
    members = draw(
        st.dictionaries(st.text("abcdefghij", min_size=1, max_size=2), st.tuples(subscriptions, assignments))
    )
    specs = {
        id: ShareMemberSpec(names if same is None else same, had) for id, (names, had) in members.items()
    }
    return specs, {topic: frozenset(range(count)) for topic, count in draw(counts).items()}


def shared(members, topics, available):
    """Return the number of members of each partition of `topics`, and the number of
    partitions of each member.
    """
    loads = {id: sum(len(target.get(topic, ())) for topic in topics) for id, target in members.items()}
    sharers = [
        sum(number in target.get(topic, ()) for target in members.values())
        for topic in topics
        for number in available[topic]
    ]
    return sharers, loads


def check_even(members, topics, available):
    sharers, loads = shared(members, topics, available)
    if not members or not sharers:
        assert not any(loads.values())
        return
    assert set(sharers) == {-(-len(members) // len(sharers))}
    assert max(loads.values()) - min(loads.values()) <= 1


@given(groups())
def test_every_partition_has_equally_many_subscribers_and_every_subscriber_as_many_partitions(group):
    specs, available = group
    targets = assign(specs, available)
    assert targets.keys() == specs.keys()
    for id, target in targets.items():
        assert all(target.values())
        assert target.keys() <= specs[id].topics & available.keys()
        assert all(numbers <= available[topic] for topic, numbers in target.items())
    wanted = [spec.topics & available.keys() for spec in specs.values()]
    used = sorted(frozenset().union(*wanted))
    if all(names == frozenset(used) for names in wanted):
        check_even(targets, used, available)
        return
    for topic in used:
        subscribers = {id: target for id, target in targets.items() if topic in specs[id].topics}
        check_even(subscribers, [topic], available)


@given(groups())
def test_an_assignment_computed_again_stays(group):
    specs, available = group
    once = assign(specs, available)
    settled = {id: spec._replace(assigned=once[id]) for id, spec in specs.items()}
    again = assign(settled, available)
    assert all(again[id] is once[id] for id in specs)


@given(groups(), st.randoms())
def test_the_order_of_members_and_topics_does_not_matter(group, random):
    specs, available = group
    members, topics = list(specs.items()), list(available.items())
    random.shuffle(members)
    random.shuffle(topics)
    assert assign(dict(members), dict(topics)) == assign(specs, available)
