"""The checker's rules for dead letters: one for each record that a share group gave up, and no other."""

from __future__ import annotations

from typing import Any

from soak.checker.deliveries import ACCEPT, REJECT, RELEASE
from tests.unit.soak.test_share_checker import GROUP, LOCK, SECOND, A, Jobs

QUEUE = ("dlq.a", 0)
LIMIT = 2


class Queued(Jobs):
    """A partition with records, and a share group with a dead-letter queue, without a mistake."""

    def __init__(self, records: int = 1, **settings: Any) -> None:
        super().__init__(records, **{"limit": LIMIT, "has_letters": True} | settings)
        self._letters: list[list[Any]] = []

    def bury(self, offset: int, count: int = 1, identity: str | None = None) -> None:
        """Add a dead letter."""
        name = self.ids[offset] if identity is None else identity
        self._letters.append([len(self._letters), GROUP, *A, offset, count, name])

    def found(self, start: int = 1) -> list[str]:
        self.world.note("survey", "letters", topic=QUEUE[0], partition=QUEUE[1], letters=self._letters)
        return super().found(start)


def rejected(**settings: Any) -> Queued:
    """Return a group that has given up its record."""
    jobs = Queued(**settings)
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, REJECT))
    return jobs


def test_a_rejected_record_has_a_dead_letter():
    jobs = rejected()
    jobs.bury(0)
    assert jobs.found() == []


def test_a_dead_letter_may_have_only_headers():
    jobs = rejected()
    jobs.bury(0, identity="")
    assert jobs.found() == []


def test_a_rejected_record_without_a_dead_letter():
    assert rejected().found() == ["dead-letter-lost"]


def test_a_group_without_a_queue_needs_no_dead_letters():
    assert rejected(has_letters=False).found() == []


def test_a_group_without_a_queue_has_a_dead_letter():
    jobs = rejected(has_letters=False)
    jobs.bury(0)
    assert jobs.found() == ["dead-letter-without-cause"]


def test_a_rejected_record_that_the_log_does_not_have_any_more_needs_no_dead_letter():
    jobs = rejected()
    jobs.world.delete(A, 1)
    assert jobs.found() == []


def test_a_record_that_a_leader_deleted_for_a_time_needs_no_dead_letter():
    """Simulation seed 1700022: a DeleteRecords failed, and the next leader had the record again."""
    jobs = rejected()
    jobs.world.delete(A, 1, undone=True)
    assert jobs.found() == []


def test_a_record_behind_those_that_a_leader_deleted_for_a_time_needs_a_dead_letter():
    jobs = rejected()
    jobs.world.delete(A, 0, undone=True)
    assert jobs.found() == ["dead-letter-lost"]


def test_a_rejected_record_has_two_dead_letters():
    jobs = rejected()
    jobs.bury(0)
    jobs.bury(0)
    assert jobs.found() == ["dead-letter-twice"]


def test_an_accepted_record_has_a_dead_letter():
    jobs = Queued()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, ACCEPT))
    jobs.bury(0)
    assert jobs.found() == ["dead-letter-without-cause"]


def test_a_record_accepted_in_its_last_delivery_has_a_dead_letter():
    jobs = Queued()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, RELEASE))
    jobs.fetch("two", (0, 2))
    jobs.acknowledge("two", (0, ACCEPT))
    jobs.bury(0, count=2)
    assert jobs.found() == ["dead-letter-without-cause"]


def test_an_acceptance_after_the_lock_may_be_too_late():
    jobs = Queued()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, RELEASE))
    jobs.fetch("two", (0, 2))
    jobs.world.now += LOCK * SECOND
    jobs.acknowledge("two", (0, ACCEPT))
    jobs.bury(0, count=2)
    assert jobs.found() == []


def test_a_record_delivered_as_often_as_allowed_has_a_dead_letter():
    jobs = Queued()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, RELEASE))
    jobs.fetch("two", (0, 2))
    jobs.acknowledge("two", (0, RELEASE))
    jobs.bury(0, count=2)
    assert jobs.found() == []


def test_a_record_delivered_as_often_as_allowed_without_a_dead_letter():
    jobs = Queued()
    jobs.fetch("one", (0, 2))
    jobs.acknowledge("one", (0, RELEASE))
    assert jobs.found() == ["dead-letter-lost"]


def test_a_request_without_an_answer_may_have_delivered_the_record():
    jobs = Queued()
    jobs.fetch("one", (0, 1))
    jobs.request("one", (0, RELEASE))
    jobs.bury(0, count=2)
    assert jobs.found() == []


def test_an_acceptance_without_an_answer_needs_no_dead_letter():
    jobs = Queued()
    jobs.fetch("one", (0, 1))
    jobs.request("one", (0, ACCEPT))
    assert jobs.found() == []


def test_a_refused_rejection_is_no_cause():
    jobs = Queued(limit=5)
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, REJECT), error="INVALID_RECORD_STATE")
    jobs.bury(0)
    assert jobs.found() == ["dead-letter-without-cause", "lost-in-share-group"]


def test_an_acceptance_that_a_former_leader_may_have_stored_needs_no_dead_letter():
    jobs = Queued()
    jobs.fetch("one", (0, 1))
    jobs.acknowledge("one", (0, ACCEPT), error="NOT_LEADER_OR_FOLLOWER")
    assert jobs.found() == []


def test_a_dead_letter_has_the_contents_of_another_record():
    jobs = rejected()
    jobs.bury(0, identity="p:7")
    assert jobs.found() == ["dead-letter-differs"]


def test_a_dead_letter_tells_more_deliveries_than_the_limit():
    jobs = rejected()
    jobs.bury(0, count=LIMIT + 1)
    assert jobs.found() == ["dead-letter-differs"]
