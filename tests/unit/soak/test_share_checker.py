"""The checker's rules for share groups: each finds what is planted, and allows what Apache Kafka allows."""

from __future__ import annotations

from typing import Any

from soak.checker import check
from soak.checker.deliveries import ACCEPT, GAP, REJECT, RELEASE, RENEW
from tests.unit.soak.world import World

A = ("a", 0)
GROUP = "jobs"
#: in the world's seconds
LOCK = 20
SECOND = 1_000_000_000


class Jobs:
    """A partition with records, and a share group without a mistake."""

    def __init__(self, records: int = 1, **settings: Any) -> None:
        self.world = World(A)
        producer = self.world.producer()
        self.ids = [producer.send(A) for _ in range(records)]
        about = {"limit": 5, "isolation": "read_uncommitted"} | settings
        self.world.note("survey", "share_settings", group=GROUP, lock=LOCK * SECOND, **about)
        self._numbers = 0
        self._members: set[str] = set()

    def request(self, member: str, *verdicts: tuple[int, int]) -> int:
        """Note that a member sends a request with acknowledgements (offset and type
        of each). Return its number.
        """
        if member not in self._members:
            self._members.add(member)
            self.world.note(member, "process", name=member, role="work", group=GROUP)
        self._numbers += 1
        self.world.note(
            member,
            "share_request",
            number=self._numbers,
            session="1.1",
            verdicts=[[*A, offset, kind] for offset, kind in verdicts],
        )
        return self._numbers

    def answer(self, member: str, number: int, error: str | None = None) -> None:
        self.world.note(member, "acknowledged", number=number, results=[[*A, error]])
        self.world.note(member, "acquired", number=number, leases=[], records=[])

    def deliver(
        self, member: str, number: int, *records: tuple[int, int], lease: str | None = "leader 1"
    ) -> None:
        """Note that the broker answers a request with records (offset and delivery count of each)."""
        self.world.note(
            member,
            "acquired",
            number=number,
            leases=[] if lease is None else [[*A, lease]],
            records=[[*A, offset, self.ids[offset], count] for offset, count in records],
        )

    def fetch(self, member: str, *records: tuple[int, int], lease: str | None = "leader 1") -> None:
        self.deliver(member, self.request(member), *records, lease=lease)

    def acknowledge(self, member: str, *verdicts: tuple[int, int], error: str | None = None) -> None:
        self.answer(member, self.request(member, *verdicts), error)

    def found(self, start: int = 0) -> list[str]:
        """Check the histories. Return the kinds of the findings if the group's start
        offset is `start` at the end.
        """
        self.world.survey()
        self.world.note("survey", "share_offsets", group=GROUP, offsets=[[*A, start]])
        return sorted({finding.kind for finding in check(self.world.histories.values())})


def test_group_that_finishes_all_records_has_no_findings():
    jobs = Jobs(3)
    jobs.fetch("one", (0, 1), (1, 1))
    jobs.fetch("two", (2, 1))
    jobs.acknowledge("one", (0, ACCEPT), (1, RELEASE))
    jobs.fetch("two", (1, 2))
    jobs.acknowledge("two", (1, REJECT), (2, ACCEPT))
    assert jobs.found(start=3) == []


def test_record_that_comes_again_after_its_acknowledgement_was_answered():
    for kind in (ACCEPT, REJECT):
        jobs = Jobs()
        jobs.fetch("one", (0, 1))
        jobs.acknowledge("one", (0, kind))
        jobs.fetch("two", (0, 2))
        assert jobs.found(start=1) == ["delivered-after-acknowledgement"]


def test_deleted_group_that_is_created_again_must_finish_all_records_again():
    for is_deleted, kinds in ((True, []), (False, ["count-fell", "delivered-after-acknowledgement"])):
        jobs = Jobs()
        jobs.fetch("one", (0, 2))
        jobs.acknowledge("one", (0, ACCEPT))
        jobs.world.note("one", "forget", topics={"a": 1})
        jobs.world.note("one", "forgot", ok=is_deleted)
        jobs.fetch("two", (0, 1))
        jobs.acknowledge("two", (0, ACCEPT))
        assert jobs.found(start=1) == kinds


def test_record_that_only_the_deleted_group_has_finished_is_lost_in_the_new_one():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, ACCEPT))
    jobs.world.note("one", "forget", topics={"a": 1})
    jobs.world.note("one", "forgot", ok=True)
    assert jobs.found(start=1) == ["lost-in-share-group"]


def test_record_of_an_acknowledgement_that_was_refused_or_not_answered_may_come_again():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, ACCEPT), error="NOT_LEADER_OR_FOLLOWER")
    jobs.fetch("two", (0, 1), lease="leader 2")
    jobs.request("two", (0, ACCEPT))
    jobs.fetch("one", (0, 1), lease="leader 3")
    jobs.acknowledge("one", (0, ACCEPT))
    assert jobs.found(start=1) == []


def test_former_leader_that_does_not_know_it_may_deliver_again():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, ACCEPT))
    jobs.fetch("two", (0, 1), lease=None)
    assert jobs.found(start=1) == []


def test_record_that_two_members_have_under_one_leader():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.fetch("two", (0, 2))
    jobs.fetch("one")
    jobs.acknowledge("two", (0, ACCEPT))
    assert jobs.found(start=1) == ["locked-twice"]


def test_member_whose_acknowledgement_is_accepted_had_the_record_alone():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.fetch("two", (0, 1), lease="leader 2")
    jobs.acknowledge("one", (0, ACCEPT))
    assert jobs.found(start=1) == ["locked-twice"]


def test_record_may_go_to_another_member_when_the_session_of_the_first_may_have_ended():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.fetch("two", (0, 2))
    jobs.acknowledge("two", (0, ACCEPT))
    assert jobs.found(start=1) == []


def test_record_may_go_to_another_member_when_its_lock_has_ended():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.world.now += LOCK * SECOND
    jobs.fetch("two", (0, 2))
    jobs.fetch("one")
    jobs.acknowledge("two", (0, ACCEPT))
    assert jobs.found(start=1) == []


def test_renewed_lock_lasts_longer():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.world.now += (LOCK - 5) * SECOND
    jobs.acknowledge("one", (0, RENEW))
    jobs.world.now += (LOCK - 10) * SECOND
    jobs.fetch("two", (0, 2))
    jobs.fetch("one")
    jobs.acknowledge("two", (0, ACCEPT))
    assert jobs.found(start=1) == ["locked-twice"]


def test_late_acknowledgement_of_a_record_that_another_member_has_finished_is_accepted():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.fetch("two", (0, 1), lease="leader 2")
    jobs.acknowledge("two", (0, ACCEPT))
    jobs.acknowledge("one", (0, ACCEPT))
    assert jobs.found(start=1) == []


def test_late_acknowledgement_of_a_record_that_compaction_has_removed_is_accepted():
    jobs = Jobs(2)
    jobs.world._compacted = ("a",)
    jobs.fetch("one", (0, 1))
    jobs.fetch("two", (0, 1), (1, 1), lease="leader 2")
    jobs.acknowledge("two", (0, RELEASE), (1, ACCEPT))
    jobs.world.logs[A][0] = (None, None, None)
    jobs.acknowledge("one", (0, ACCEPT))
    assert jobs.found(start=2) == []


def test_gap_where_compaction_has_removed_a_record_is_no_acknowledgement_of_an_earlier_delivery():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.fetch("two", (0, 1), lease="leader 2")
    jobs.acknowledge("two", (0, RELEASE))
    jobs.fetch("one", lease="leader 2")
    jobs.acknowledge("one", (0, GAP))
    jobs.fetch("two", (0, 2), lease="leader 2")
    jobs.acknowledge("two", (0, ACCEPT))
    assert jobs.found(start=1) == []


def test_count_of_deliveries_that_falls():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, RELEASE))
    jobs.fetch("two", (0, 1), lease="leader 2")  # the release was stored
    jobs.acknowledge("two", (0, ACCEPT))
    assert jobs.found(start=1) == ["count-fell"]


def test_count_of_a_delivery_without_an_answer_may_be_forgotten_by_the_next_leader():
    jobs = Jobs()
    jobs.fetch("one", (0, 2))
    jobs.fetch("two", (0, 1), lease="leader 2")
    jobs.acknowledge("two", (0, ACCEPT))
    assert jobs.found(start=1) == []


def test_record_that_is_delivered_more_often_than_the_limit():
    jobs = Jobs(limit=2)
    jobs.fetch("one", (0, 3))
    jobs.acknowledge("one", (0, ACCEPT))
    assert jobs.found(start=1) == ["delivered-too-often"]


def test_record_before_the_start_offset_that_no_member_has_finished():
    jobs = Jobs(limit=3)
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, RELEASE))
    assert jobs.found(start=1) == ["lost-in-share-group"]


def test_released_record_that_a_leader_deleted_for_a_time_is_not_delivered_again():
    jobs = Jobs(limit=3)
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, RELEASE))
    jobs.world.delete(A, 1, undone=True)
    assert jobs.found(start=1) == []


def test_record_that_was_delivered_to_its_limit_is_given_up():
    jobs = Jobs(limit=3)
    jobs.fetch("one", (0, 2))
    jobs.acknowledge("one", (0, RELEASE))
    jobs.request("two")  # the third delivery may have been in the answer that never came
    assert jobs.found(start=1) == []


def test_record_that_is_not_finished_in_the_end():
    jobs = Jobs(2)
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, ACCEPT))
    assert jobs.found(start=1) == ["stalled-share-group"]


def test_aborted_record_that_a_read_committed_group_gets():
    world = World(A)
    producer = world.producer(transactional_id="t")
    producer.begin()
    aborted = producer.send(A)
    producer.end(commit=False)
    jobs = Jobs(isolation="read_committed")
    jobs.world, jobs.ids = world, [aborted]
    settings = {"lock": LOCK * SECOND, "limit": 5, "isolation": "read_committed"}
    world.note("survey", "share_settings", group=GROUP, **settings)
    world.note("one", "process", name="one", role="work", group=GROUP, isolation="read_committed")
    jobs._members.add("one")
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, ACCEPT))
    assert "aborted-read" in jobs.found(start=1)


def test_acknowledgement_that_a_former_leader_has_stored_while_another_member_had_the_record():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    late = jobs.request("one", (0, ACCEPT))
    jobs.fetch("two", (0, 1), lease="leader 2")
    jobs.answer("one", late)
    assert jobs.found(start=1) == ["locked-twice"]


def test_acknowledgement_without_an_answer_until_another_member_has_finished_the_record():
    jobs = Jobs()
    jobs.fetch("one", (0, 1))
    late = jobs.request("one", (0, ACCEPT))
    jobs.fetch("two", (0, 1), lease="leader 2")
    jobs.acknowledge("two", (0, ACCEPT))
    jobs.answer("one", late)
    assert jobs.found(start=1) == []
