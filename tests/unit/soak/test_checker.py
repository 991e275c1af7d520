"""The checker finds and names each planted anomaly and nothing else. Correct histories have no findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from soak.checker import KINDS, check
from soak.checker.model import Log
from tests.unit.soak.world import SECOND, World

A, B, OUT = ("a", 0), ("a", 1), ("out", 0)


def found(world: World) -> list[str]:
    return sorted({finding.kind for finding in check(world.histories.values())})


def drop(world: World, place, identity: str) -> None:
    """Remove the record from the log, for all readers."""
    for isolation in ("read_uncommitted", "read_committed"):
        shown = world.shown(place, isolation)
        shown["records"] = [record for record in shown["records"] if record[1] != identity]


# --- writes


def test_acknowledged_record_that_is_not_in_the_log_is_lost():
    world = World(A)
    producer = world.producer()
    lost = producer.send(A)
    producer.send(A)
    drop(world.survey(), A, lost)
    (finding,) = check(world.histories.values())
    assert finding.kind == "lost-write"
    assert lost in finding.text
    assert finding.evidence["acknowledged at"] == 0
    assert finding.client == "test"


def test_unanswered_record_may_be_there_or_not():
    for there in (True, False):
        world = World(A)
        missing = world.producer().send(A, answered=False)
        world.survey()
        if not there:
            drop(world, A, missing)
        assert found(world) == []


def test_record_before_the_start_of_its_log_is_not_lost():
    world = World(A)
    producer = world.producer()
    for _ in range(5):
        producer.send(A)
    world.expire(A, 3)
    assert found(world.survey()) == []


def test_compaction_may_take_a_value_that_has_a_successor_and_no_other():
    world = World(A, compacted=("a",))
    producer = world.producer()
    old, _, last = producer.send(A, "k"), producer.send(A, "k"), producer.send(A, "j")
    drop(world.survey(), A, old)
    assert found(world) == []
    drop(world, A, last)
    assert found(world) == ["lost-write"]


def test_compaction_may_take_what_was_aborted():
    world = World(A, compacted=("a",))
    consumer = world.consumer(isolation="read_uncommitted")
    consumer.assign(A)
    (aborted,) = transaction(world, A, commit=False)
    consumer.poll()
    drop(world.survey(), A, aborted)
    assert found(world) == []


def test_idempotent_record_that_is_there_twice_is_a_duplicate():
    for idempotent, expected in ((True, ["duplicate"]), (False, [])):
        world = World(A)
        doubled = world.producer(idempotent=idempotent).send(A)
        world.logs[A].append((doubled, "k", None))
        assert found(world.survey()) == expected


def test_record_that_nobody_sent_is_a_phantom():
    world = World(A)
    world.producer()
    world.logs[A].append(("nobody:1", "k", None))
    assert found(world.survey()) == ["phantom"]


def test_record_that_was_certainly_not_sent_is_a_phantom():
    world = World(A)
    identity = world.producer().send(A, answered=False)
    world.note("p", "nack", id=identity, error="the queue is full", unknown=False)
    assert found(world.survey()) == ["phantom"]


def test_records_of_a_producer_that_lie_in_another_order_are_reordered():
    world = World(A)
    producer = world.producer()
    producer.send(A, answered=False)
    producer.send(A, answered=False)
    world.logs[A].reverse()
    assert found(world.survey()) == ["reordered"]


def test_record_that_lies_elsewhere_than_acknowledged_has_moved():
    world = World(A)
    producer = world.producer()
    producer.send(A)
    world.events("p", "ack")[0]["offset"] = 7
    assert found(world.survey()) == ["moved-offset"]


# --- reads


def test_record_that_was_read_and_is_not_in_the_log_is_a_lost_read():
    world = World(A)
    producer, consumer = world.producer(), world.consumer()
    lost = producer.send(A, answered=False)
    producer.send(A)
    consumer.assign(A)
    consumer.poll()
    drop(world.survey(), A, lost)
    assert found(world) == ["lost-read"]


def test_record_in_the_deleted_topic_may_be_read_but_an_acknowledged_one_is_not_excused():
    world = World(A)
    producer, consumer = world.producer(), world.consumer()
    former = producer.send(A, answered=False)
    acknowledged = producer.send(A)
    consumer.assign(A)
    consumer.poll()
    for record in (former, acknowledged):
        world.note("p", "former", id=record)
    drop(world.survey(), A, former)
    assert found(world) == []
    drop(world, A, acknowledged)
    assert found(world) == ["lost-write"]


def test_offset_that_holds_another_record_than_was_read_has_moved():
    world = World(A)
    producer, consumer = world.producer(), world.consumer()
    producer.send(A, answered=False)
    producer.send(A, answered=False)
    consumer.assign(A)
    consumer.poll(1)
    world.survey()
    world.events("c", "poll")[0]["records"][0][3] = "p:2"
    assert found(world) == ["moved-offset"]


def transaction(world: World, *places, commit: bool = True, answered: bool = True, name: str = "t"):
    producer = world.producer(name, transactional_id=name)
    producer.begin()
    sent = [producer.send(place) for place in places]
    producer.end(commit=commit, answered=answered)
    return sent


def test_aborted_record_in_the_hands_of_a_reader_of_committed_ones():
    world = World(A)
    consumer = world.consumer(isolation="read_uncommitted")
    consumer.assign(A)
    transaction(world, A, commit=False)
    consumer.poll()
    world.survey()
    assert found(world) == []
    world.histories["c"][0]["isolation"] = "read_committed"
    assert found(world) == ["aborted-read"]


@pytest.mark.parametrize("in_transaction", [False, True])
def test_compaction_between_the_two_readings_of_a_log_makes_no_aborted_read(in_transaction):
    """The committed records were read later. One run had 3,810 wrong findings because of this."""
    world = World(A, compacted=("a",))
    consumer = world.consumer(isolation="read_committed")
    consumer.assign(A)
    producer = world.producer("t", transactional_id="t" if in_transaction else None)
    if in_transaction:
        producer.begin()
    old, last = producer.send(A, "k"), producer.send(A, "k")
    if in_transaction:
        producer.end()
    consumer.poll()
    shown = world.survey().shown(A, "read_committed")
    shown["records"] = [record for record in shown["records"] if record[1] != old]
    assert found(world) == []
    shown["records"] = [record for record in shown["records"] if record[1] != last]
    assert "aborted-read" in found(world)


def test_what_was_aborted_is_an_aborted_read_in_a_compacted_topic_too():
    world = World(A, compacted=("a",))
    consumer = world.consumer(isolation="read_uncommitted")
    consumer.assign(A)
    producer = world.producer("t", transactional_id="t")
    producer.begin()
    producer.send(A, "k")
    producer.end(commit=False)
    consumer.poll()
    world.producer().send(A, "k")
    world.survey()
    world.histories["c"][0]["isolation"] = "read_committed"
    assert found(world) == ["aborted-read"]


def test_record_read_before_its_transaction_was_to_be_committed_is_a_dirty_read():
    world = World(A)
    consumer = world.consumer(isolation="read_uncommitted")
    consumer.assign(A)
    producer = world.producer("t", transactional_id="t")
    producer.begin()
    producer.send(A)
    consumer.poll()
    producer.end()
    world.survey()
    assert found(world) == []
    world.histories["c"][0]["isolation"] = "read_committed"
    assert found(world) == ["dirty-read"]


def past_stable(end: bool) -> World:
    """Let a reader receive a record after an open transaction's first record, but not the transaction's
    records.
    """
    world = World(A)
    consumer = world.consumer()
    consumer.assign(A)
    producer = world.producer("t", transactional_id="t", transaction_timeout=100 * SECOND)
    producer.begin()
    producer.send(A)
    behind = world.producer().send(A)
    if end:
        producer.end(commit=False)
    world.note("c", "poll", records=[[*A, 1, behind]])
    if not end:
        producer.end(commit=False)
    return world.survey()


def test_record_behind_a_transaction_that_is_open_was_read_past_the_stable_offset():
    assert found(past_stable(end=True)) == []
    assert found(past_stable(end=False)) == ["read-past-stable"]


@pytest.mark.parametrize("ended_by", ["timeout", "successor", "slow successor", "zombie"])
def test_transaction_may_be_ended_by_its_age_a_successor_or_a_zombie(ended_by):
    world = past_stable(end=False)
    if ended_by == "timeout":
        world.histories["t"][0]["transaction_timeout"] = SECOND
    elif ended_by == "zombie":
        about = {"name": "z", "role": "produce", "transactional_id": "t"}
        world.histories["z"] = [
            {"what": "process", "at": 0, **about},
            {"what": "begin", "at": 0, "txn": 1},
            {"what": "end", "at": 0, "txn": 1, "commit": False},
        ]
    else:
        # A call that began before the transaction may take effect in it.
        at = 0 if ended_by == "slow successor" else world.events("t", "ack")[0]["at"] + 1
        about = {"name": "u", "role": "produce", "transactional_id": "t"}
        world.histories["u"] = [{"what": "process", "at": at, **about}, {"what": "init", "at": at}]
    assert found(world) == []


def read_three(world: World) -> list[dict]:
    """Return three records, each received in a separate poll."""
    producer, consumer = world.producer(), world.consumer()
    consumer.assign(A)
    for _ in range(3):
        producer.send(A)
        consumer.poll()
    world.survey()
    return world.events("c", "poll")


def test_consumer_that_is_given_a_record_again_went_back():
    world = World(A)
    read_three(world)[2]["records"] = [[*A, 0, "p:1"]]
    assert found(world) == ["nonmonotonic-poll"]


def test_consumer_that_is_not_given_a_record_skipped_it():
    world = World(A)
    read_three(world)[1]["records"] = []
    assert found(world) == ["poll-skip"]


def test_seek_may_go_back_and_the_consumer_goes_on_there():
    world = World(A)
    polls = read_three(world)
    events = world.histories["c"]
    place = events.index(polls[2])
    events.insert(place, {"what": "seek", "at": polls[2]["at"] - 1, "offsets": [[*A, 0]]})
    assert found(world) == ["poll-skip"]
    polls[2]["records"] = [[*A, 0, "p:1"]]
    assert found(world) == []


# --- transactions


def test_transaction_of_which_a_part_can_be_read_is_torn():
    world = World(A, B)
    _, missing = transaction(world, A, B, answered=False)
    shown = world.survey().shown(B, "read_committed")
    shown["records"] = [record for record in shown["records"] if record[1] != missing]
    assert found(world) == ["torn-transaction"]


def test_transaction_whose_commit_nobody_answered_is_there_or_not():
    for commit in (True, False):
        world = World(A, B)
        transaction(world, A, B, commit=commit, answered=False)
        world.events("t", "end")[0]["commit"] = True
        assert found(world.survey()) == []


def test_committed_transaction_that_cannot_be_read_is_lost():
    world = World(A)
    transaction(world, A, commit=False)
    for what in ("end", "ended"):
        world.events("t", what)[0]["commit"] = True
    assert found(world.survey()) == ["lost-write"]


@pytest.mark.parametrize("ended", [True, False])
def test_transaction_that_was_not_committed_must_not_be_visible(ended):
    world = World(A)
    transaction(world, A)
    if ended:
        for what in ("end", "ended"):
            world.events("t", what)[0]["commit"] = False
    else:
        world.histories["t"] = [e for e in world.histories["t"] if e["what"] not in ("end", "ended")]
    assert found(world.survey()) == ["aborted-visible"]


def test_transaction_that_nobody_ends_hangs():
    world = World(A)
    producer = world.producer("t", transactional_id="t")
    producer.begin()
    producer.send(A)
    assert found(world.survey()) == ["hanging-transaction"]


# --- loops


def loop(world: World, rounds: int = 3) -> None:
    """Run a loop with two inputs a round, each with an output. The second round is aborted and repeated."""
    source, consumer = world.producer(), world.consumer("c", "g", role="transform")
    producer = Loop(world, consumer)
    consumer.assign(A)
    for number in range(rounds):
        source.send(A)
        source.send(A)
        producer.step(commit=number != 1)
        if number == 1:
            consumer.rewind()
            producer.step()


class Loop:
    """The transactional producer of a loop, in the same process as its consumer."""

    def __init__(self, world: World, consumer) -> None:
        self.consumer = consumer
        self.producer = world.producer(**consumer.process, transactional_id="t")

    def step(self, *, commit: bool = True, forget: bool = False) -> None:
        taken = self.consumer.poll()
        self.producer.begin()
        for place, offset, _ in taken:
            self.producer.send(OUT, source=[*place, offset])
        if not forget:
            self.producer.offsets("g", dict(self.consumer.positions))
        self.producer.end(commit=commit)


def test_loop_that_aborts_and_goes_back_is_exactly_once():
    world = World(A, OUT)
    loop(world)
    assert found(world.survey()) == []


def test_two_outputs_of_one_input():
    world = World(A, OUT)
    loop(world)
    sends = world.survey().events("c", "send")
    sends[-1]["source"] = sends[0]["source"]
    assert found(world) == ["processed-never", "processed-twice"]


def test_output_whose_input_is_not_committed():
    world = World(A, OUT)
    loop(world)
    world.committed["g", A] = 4
    world.survey()
    assert found(world) == ["offset-jump", "stalled-group", "uncommitted-output"]


def test_loop_that_forgets_its_offsets_is_found():
    world = World(A, OUT)
    source, consumer = world.producer(), world.consumer("c", "g", role="transform")
    both = Loop(world, consumer)
    consumer.assign(A)
    source.send(A)
    both.step(forget=True)
    world.survey()
    assert found(world) == ["stalled-group", "uncommitted-output"]


# --- groups


def group(world: World, *, second_at: int | None = None, answered: bool = True) -> World:
    """Let one member read four records, commit and leave. A second one begins at the committed offset, or
    elsewhere.
    """
    producer = world.producer()
    first, second = world.consumer("c", "g"), world.consumer("d", "g")
    for _ in range(4):
        producer.send(A)
    first.assign(A)
    first.poll(2)
    first.commit()
    first.poll(2)
    first.commit(answered=answered)
    first.revoke()
    second.assign(A)
    for _ in range(2):
        producer.send(A)
    if second_at is not None:
        second.positions[A] = second_at
    second.poll()
    second.commit()
    return world.survey()


def test_member_begins_where_its_group_has_committed():
    assert found(group(World(A))) == []


def test_member_that_begins_before_what_was_committed_lost_a_commit():
    assert found(group(World(A), second_at=2)) == ["offset-jump"]
    assert found(group(World(A), second_at=0)) == ["offset-jump"]


def test_commit_that_nobody_answered_may_have_failed():
    assert found(group(World(A), second_at=2, answered=False)) == []
    assert found(group(World(A), second_at=1, answered=False)) == ["offset-jump"]


def test_member_that_begins_behind_what_was_committed_skips_records():
    assert found(group(World(A), second_at=5)) == ["group-skip", "offset-jump"]


def deleted_group(begins_at: int, *, is_deleted: bool | None) -> World:
    """Let a member read four records, commit and leave. Its group is then deleted, and another member joins.

    If `is_deleted` is None, the deletion has no answer.
    """
    world = World(A)
    producer = world.producer()
    first, second = world.consumer("c", "g"), world.consumer("d", "g")
    for _ in range(4):
        producer.send(A)
    first.assign(A)
    first.poll()
    first.commit()
    first.revoke()
    world.note("c", "forget", topics={"a": 1})
    if is_deleted is not None:
        world.note("c", "forgot", ok=is_deleted)
    producer.send(A)
    second.assign(A)
    second.positions[A] = begins_at
    second.poll()
    second.commit()
    return world.survey()


def test_group_begins_anew_after_its_deletion():
    assert found(deleted_group(0, is_deleted=True)) == []
    assert found(deleted_group(0, is_deleted=None)) == []
    assert found(deleted_group(0, is_deleted=False)) == ["offset-jump"]


def test_offset_of_a_deleted_group_that_is_back_has_jumped():
    assert found(deleted_group(4, is_deleted=True)) == ["offset-jump"]
    assert found(deleted_group(4, is_deleted=None)) == []
    assert found(deleted_group(4, is_deleted=False)) == []


def test_committed_offset_that_is_another_in_the_end_has_jumped():
    world = World(A)
    group(world)
    world.events("soak", "group")[0]["offsets"] = [[*A, 2]]
    assert found(world) == ["offset-jump", "stalled-group"]


def test_group_that_does_not_come_to_the_end_has_stalled():
    world = World(A)
    producer, consumer = world.producer(), world.consumer("c", "g")
    consumer.assign(A)
    producer.send(A)
    consumer.poll()
    consumer.commit()
    producer.send(A)
    assert found(world.survey()) == ["stalled-group"]


def test_producer_that_gets_nothing_done_in_the_calm_has_stalled():
    world = World(A)
    producer = world.producer()
    producer.send(A)
    calm = world.note("soak", "calm")
    assert found(world.survey()) == ["stalled-producer"]
    world.note("soak", "stopped", target="p")["at"] = calm["at"] + 5 * SECOND  # it had hardly begun
    assert found(world) == []
    producer.send(A)
    world.shown(A)["records"].append([1, "p:2", "k"])
    world.shown(A, "read_committed")["records"].append([1, "p:2", "k"])
    assert found(world) == []


def test_lives_that_follow_each_other_and_get_nothing_done_have_stalled():
    world = World(A)
    first = world.producer("p.1")
    first.send(A)
    world.note("soak", "calm")
    world.now += 20 * SECOND
    late = world.producer("p.2")
    world.note("soak", "stopped", target=late.name)
    world.note("soak", "stopped", target=first.name)
    assert found(world.survey()) == ["stalled-producer"]


def test_a_life_that_takes_over_late_from_one_that_got_something_done_has_not_stalled():
    world = World(A)
    first = world.producer("p.1")
    world.note("soak", "calm")
    first.send(A)
    world.now += 20 * SECOND
    world.note("soak", "stopped", target=first.name)
    late = world.producer("p.2")
    world.note("soak", "stopped", target=late.name)
    assert found(world.survey()) == []


def test_a_life_that_gets_nothing_done_for_long_has_stalled_whatever_the_earlier_one_did():
    world = World(A)
    first = world.producer("p.1")
    world.note("soak", "calm")
    first.send(A)
    world.note("soak", "stopped", target=first.name)
    late = world.producer("p.2")
    world.now += 20 * SECOND
    world.note("soak", "stopped", target=late.name)
    assert found(world.survey()) == ["stalled-producer"]


def test_producer_that_gives_up_in_the_calm_has_no_second_finding():
    world = World(A)
    world.producer().send(A)
    world.note("soak", "calm")
    world.note("p", "gave_up", why="a step", seconds=80, answered=True, states=[""])
    assert found(world.survey()) == ["stalled-client"]


def test_client_that_the_soak_has_killed_before_the_calm_owes_nothing():
    world = World(A)
    world.producer().send(A)
    world.note("soak", "stopped", target="p")
    world.note("soak", "calm")
    assert found(world.survey()) == []


def test_log_that_cannot_be_read_to_its_end_is_a_finding():
    world = World(A)
    world.producer().send(A)
    world.survey().shown(A)["is_whole"] = False
    assert found(world) == ["unreadable"]


# --- retention, deleted records, deleted topics


@pytest.mark.parametrize(("seconds", "expected"), [(30, ["deleted-early"]), (3, [])])
def test_log_must_not_begin_behind_a_record_that_its_topic_keeps(seconds, expected):
    world = World(A)
    producer = world.producer()
    for _ in range(5):
        producer.send(A)
    world.now += 10 * SECOND
    world.starts[A] = 3
    world.look(A)
    world.survey().events("soak", "topic")[0]["retention_ms"] = seconds * 1000
    assert found(world) == expected


def test_log_of_a_topic_that_keeps_everything_must_begin_at_its_first_record():
    world = World(A)
    producer = world.producer()
    for _ in range(5):
        producer.send(A)
    world.starts[A] = 3
    assert found(world.survey()) == ["deleted-early"]


@pytest.mark.parametrize(("retained", "expected"), [(2000, ["deleted-early"]), (100, [])])
def test_retention_by_size_must_leave_as_many_bytes_as_it_says(retained, expected):
    world = World(A)
    producer = world.producer()
    for _ in range(5):
        producer.send(A)
    world.starts[A] = 3
    world.look(A)
    for _ in range(50):
        producer.send(A)  # in the end there is enough again
    world.survey().events("soak", "topic")[0]["retention_bytes"] = retained
    assert found(world) == expected


def test_deleted_records_are_not_lost():
    for answered in (True, False):
        world = World(A)
        producer, consumer = world.producer(), world.consumer()
        for _ in range(5):
            producer.send(A)
        world.delete(A, 3, answered=answered)
        world.look(A)
        consumer.assign(A)
        consumer.poll()
        assert found(world.survey()) == []


def test_log_that_begins_before_deleted_records_again_is_a_finding():
    for again_at in ("a look", "the end"):
        world = World(A)
        producer = world.producer()
        for _ in range(5):
            producer.send(A)
        world.delete(A, 3)
        if again_at == "the end":
            world.starts[A] = 0
        noted = world.look(A)
        noted["bounds"][0][2] = 2
        assert found(world.survey()) == ["undeleted"]


@pytest.mark.parametrize(("how", "expected"), [("deletion", []), ("retention", ["undeleted"])])
def test_log_whose_start_goes_back_is_a_finding_unless_a_deletion_was_not_acknowledged(how, expected):
    world = World(A)
    producer = world.producer()
    for _ in range(5):
        producer.send(A)
    if how == "deletion":
        world.delete(A, 3, answered=False)
    else:
        world.expire(A, 3)
    world.look(A)
    world.starts[A] = 0
    assert found(world.survey()) == expected


def test_consumer_that_is_given_deleted_records_is_a_finding_unless_it_had_them_in_its_buffer():
    for late, expected in ((True, ["undeleted"]), (False, [])):
        world = World(A)
        producer, consumer = world.producer(), world.consumer()
        for _ in range(5):
            producer.send(A)
        if not late:
            consumer.assign(A)
        world.delete(A, 3)
        if late:
            consumer.assign(A)
        world.starts[A] = 0
        consumer.poll()
        world.starts[A] = 3
        assert found(world.survey()) == expected


def test_high_watermark_that_goes_back_is_a_finding():
    world = World(A)
    world.producer().send(A, answered=False)
    world.look(A)
    drop(world.survey(), A, "p:1")
    world.shown(A)["end"] = 0
    world.shown(A, "read_committed")["end"] = 0
    assert found(world) == ["truncated"]


def test_acknowledged_record_of_a_topic_that_is_not_there_is_lost():
    world = World(A, B)
    world.producer().send(B)
    del world.logs[B]
    assert found(world.survey()) == ["lost-write"]


def test_topic_that_is_deleted_and_made_again_loses_its_records_and_nothing_else():
    world = World(A)
    producer = world.producer()
    world.create(OUT, "1")
    old = producer.send(OUT)
    world.scan(OUT)
    world.remove(OUT)
    producer.send(A)
    world.create(OUT, "2")
    new = producer.send(OUT)
    noted = world.scan(OUT)
    assert found(world.survey()) == []

    noted["records"] = []
    assert found(world) == ["lost-write"]
    noted["records"] = [[0, old, "k"], [1, new, "k"]]
    assert found(world) == ["resurrected"]


def test_record_that_was_in_a_topic_when_it_was_deleted_must_not_be_in_the_new_one_in_the_end():
    world = World(A)
    producer = world.producer()
    world.create(OUT)
    producer.send(OUT)
    old = world.logs[OUT]
    world.remove(OUT)
    world.create(OUT)
    world.logs[OUT] = old
    assert found(world.survey()) == ["resurrected"]


def test_copy_that_comes_late_may_be_in_the_topic_that_was_made_again():
    for is_on_its_way, expected in ((True, []), (False, ["resurrected"])):
        world = World(A)
        producer = world.producer()
        world.create(OUT)
        late = producer.send(OUT)
        if is_on_its_way:
            world.note("p", "on_its_way", id=late)
        old = world.logs[OUT]
        world.remove(OUT)
        world.create(OUT)
        world.logs[OUT] = old
        assert found(world.survey()) == expected


def test_topic_that_is_made_again_with_its_old_id_is_a_finding():
    world = World(A)
    world.create(OUT, "1")
    world.remove(OUT)
    world.create(OUT, "1")
    assert found(world.survey()) == ["resurrected"]


def test_topic_that_nobody_deleted_must_be_there():
    world = World(A)
    world.create(OUT)
    world.remove(OUT)["existed"] = False
    world.create(OUT)
    assert found(world.survey()) == ["lost-topic"]


def test_topic_that_nobody_deleted_must_be_there_in_the_end():
    for removed_again, expected in ((False, ["lost-topic"]), (True, [])):
        world = World(A)
        for _ in range(2):
            world.create(OUT)
            world.remove(OUT)
        if not removed_again:
            world.histories["recycle"][-2:] = []
        assert found(world.survey()) == expected


def test_deletion_of_unknown_outcome_may_have_had_its_effect_until_another_has_succeeded():
    for settled, expected in ((False, []), (True, ["lost-write"])):
        world = World(A)
        producer = world.producer()
        world.create(OUT)
        world.remove(OUT)["ok"] = False
        if settled:
            world.create(OUT)
            world.remove(OUT)
        world.create(OUT)
        lost = producer.send(OUT)
        drop(world.survey(), OUT, lost)
        assert found(world) == expected


def test_tombstone_may_be_gone_and_what_it_deleted_may_be():
    world = World(A, compacted=("a",))
    producer = world.producer()
    old, tombstone = producer.send(A, "k"), producer.send(A, "k", tombstone=True)
    drop(world.survey(), A, old)
    assert found(world) == []
    drop(world, A, tombstone)
    assert found(world) == []


def test_value_that_is_there_without_the_tombstone_behind_it_is_a_finding():
    world = World(A, compacted=("a",))
    producer = world.producer()
    producer.send(A, "k")
    tombstone = producer.send(A, "k", tombstone=True)
    drop(world.survey(), A, tombstone)
    assert found(world) == ["resurrected"]


def test_tombstone_deletes_nothing_behind_it():
    world = World(A, compacted=("a",))
    producer = world.producer()
    producer.send(A, "k", tombstone=True)
    value = producer.send(A, "k")
    drop(world.survey(), A, value)
    assert found(world) == ["lost-write"]


@pytest.mark.parametrize("tombstone", [False, True])
def test_what_was_aborted_takes_no_value_of_its_key(tombstone):
    world = World(A, compacted=("a",))
    kept = world.producer().send(A, "k")
    other = world.producer("t", transactional_id="t")
    other.begin()
    other.send(A, "k", tombstone=tombstone)
    other.end(commit=False)
    drop(world.survey(), A, kept)
    assert found(world) == ["lost-write"]


def test_a_client_that_waits_for_ever_is_told_of():
    world = World(A)
    world.producer()
    world.note("p", "gave_up", why="a step", seconds=80, answered=True, states=["PrepareCommit"] * 2)
    world.survey()
    assert found(world) == ["stalled-client"]


# --- clean histories

KINDS_OF_STEPS = [
    "send",
    "open",
    "write",
    "end",
    "poll",
    "commit",
    "move",
    "rewind",
    "expire",
    "delete",
    "look",
]
STEPS = st.lists(st.tuples(st.sampled_from(KINDS_OF_STEPS), st.integers(0, 7)), max_size=60)


@given(STEPS)
def test_clean_histories_have_no_findings(steps):
    world = World(A, B)
    plain = world.producer("p")
    writers = [world.producer(f"t{n}", transactional_id=f"t{n}") for n in range(2)]
    readers = [
        world.consumer("c0", "g"),
        world.consumer("c1", "g"),
        world.consumer("c2", "h", isolation="read_uncommitted"),
    ]
    readers[0].assign(A, B)
    readers[2].assign(A, B)
    is_open = [False, False]
    owner = 0
    for step, number in steps:
        place = (A, B)[number % 2]
        writer = number % 2
        reader = readers[owner] if number % 3 else readers[2]
        if step == "send":
            plain.send(place, answered=bool(number % 4))
        elif step == "open" and not is_open[writer]:
            writers[writer].begin()
            is_open[writer] = True
        elif step == "write" and is_open[writer]:
            writers[writer].send((A, B)[number // 2 % 2])
        elif step == "end" and is_open[writer]:
            writers[writer].end(commit=bool(number & 2), answered=bool(number & 4))
            is_open[writer] = False
        elif step == "poll":
            reader.poll(1 + number)
        elif step == "commit":
            reader.commit(answered=bool(number & 4))
        elif step == "move":
            readers[owner].revoke()
            owner = 1 - owner
            readers[owner].assign(A, B)
        elif step == "rewind":
            reader.rewind()
        elif step == "expire":
            world.expire(place, number)
        elif step == "delete":
            world.delete(place, min(number, len(world.logs[place])), answered=bool(number % 3))
        elif step == "look":
            world.look(place)
    for writer, still_open in zip(writers, is_open, strict=True):
        if still_open:
            writer.end(commit=False)
    for reader in (readers[owner], readers[2]):
        reader.poll()
        reader.commit()
    assert check(world.survey().histories.values()) == []


def test_every_kind_of_finding_is_planted_above():
    names = ("test_checker.py", "test_share_checker.py", "test_dead_letter_checker.py")
    text = "".join(Path(__file__).with_name(name).read_text() for name in names)
    assert [kind for kind in KINDS if f'"{kind}"' not in text] == []


def test_reader_of_a_replica_that_has_compacted_more_is_given_less():
    records = [(0, "p:1", "a"), (1, "p:2", "b"), (2, "p:3", "a"), (3, "p:4", None)]
    assert Log(0, 4, records).between(0, 4) == [0, 1, 2, 3]
    assert Log(0, 4, records, is_compacted_apart=True).between(0, 4) == [1, 2, 3]


@pytest.mark.parametrize("replicas", [1, 3])
def test_reader_of_a_replica_that_has_deleted_a_tombstone_is_not_given_it(replicas):
    world = World(A, compacted=("a",))
    world.retention["a"] = {"replicas": replicas}
    producer, consumer = world.producer(), world.consumer()
    consumer.assign(A)
    for key, is_tombstone in (("j", False), ("k", True), ("l", False)):
        producer.send(A, key, tombstone=is_tombstone)
        consumer.poll()
    world.survey()
    world.events("c", "poll")[1]["records"] = []
    assert found(world) == (["poll-skip"] if replicas == 1 else [])


@pytest.mark.parametrize("replicas", [1, 3])
def test_reader_of_a_replica_that_has_deleted_an_aborted_record_is_not_given_it(replicas):
    world = World(A, compacted=("a",))
    world.retention["a"] = {"replicas": replicas}
    writer, consumer = world.producer("t", transactional_id="t"), world.consumer(isolation="read_uncommitted")
    consumer.assign(A)
    for commit in (True, False, True):
        writer.begin()
        writer.send(A)
        writer.end(commit=commit)
        consumer.poll()
    world.survey()
    world.events("c", "poll")[1]["records"] = []
    assert found(world) == (["poll-skip"] if replicas == 1 else [])
