"""The changes between two samples in the overview."""

from __future__ import annotations

from barnabas.console.events import ClusterSnapshot, Events


def seen(brokers=(1, 2, 3), controller=1, topics=("a", "b"), offline=(), under_replicated=()):
    sets = (topics, offline, under_replicated)
    return ClusterSnapshot(frozenset(brokers), controller, *(frozenset(each) for each in sets))


def told(*looks):
    events = Events()
    for at, look in enumerate(looks):
        events.look(at, look)
    return [(event.at, event.text) for event in events.recent()]


def test_nothing_is_told_of_the_first_look_and_of_a_quiet_cluster():
    assert told(seen()) == told(seen(), seen(), seen()) == []


def test_a_broker_that_dies_and_comes_back_is_told_with_what_follows_from_it():
    dead = seen((2, 3), 2, offline=["a-0"], under_replicated=["a-0", "a-1", "a-2", "b-0", "b-1"])
    assert told(seen(), dead, seen(controller=2)) == [
        (2, "a-0, a-1, a-2 and 2 more have all replicas in sync again"),
        (2, "a-0 has a leader again"),
        (2, "broker 1 has joined"),
        (1, "a-0, a-1, a-2 and 2 more have replicas out of sync"),
        (1, "a-0 has no leader"),
        (1, "broker 2 is the controller, which was 1"),
        (1, "broker 1 has gone"),
    ]


def test_a_controller_that_lives_on_is_not_told_since_kafka_names_any():
    assert told(seen(), seen(controller=2), seen(controller=3)) == []


def test_topics_come_and_go_and_their_partitions_do_not_recover_by_it():
    assert told(seen(), seen(topics=["a"])) == [(1, "b was deleted")]
    gone = told(seen(under_replicated=["b-0"]), seen(topics=["a", "c", "d"]))
    assert gone == [(1, "b was deleted"), (1, "c, d were created")]


def test_what_the_console_did_itself_is_told_and_only_the_newest_are_kept():
    events = Events()
    for at in range(200):
        events.add(at, f"barnabas topics create t-{at}")
    recent = events.recent()
    assert len(recent) == 100 and recent[0] == (199, "barnabas topics create t-199")


def test_users_topics_are_named_before_internal_ones():
    inner = [f"__consumer_offsets-{number}" for number in range(50)]
    ((_, text),) = told(seen(), seen(under_replicated=[*inner, "a-0"]))
    assert text.startswith("a-0, __consumer_offsets-0, ")
