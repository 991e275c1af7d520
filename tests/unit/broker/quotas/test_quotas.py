"""Quotas of clients: the quota that applies, the measured use, and the throttle time."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.metrics import Rate
from barnabas.broker.quotas import DEFAULT, ClientQuotas, QuotaEntity, QuotaKind, TokenBucket

PRODUCE = QuotaKind.PRODUCE


@pytest.fixture
def quotas(time):
    return ClientQuotas(time)


def set_rates(quotas, entities, kind=PRODUCE):
    for entity, limit in entities.items():
        quotas.set(entity, {kind.value: str(limit)})


#: from the most to the least specific, as in the documentation of Kafka
IN_ORDER = [
    QuotaEntity("alice", "app"),
    QuotaEntity("alice", DEFAULT),
    QuotaEntity("alice"),
    QuotaEntity(DEFAULT, "app"),
    QuotaEntity(DEFAULT, DEFAULT),
    QuotaEntity(DEFAULT),
    QuotaEntity(None, "app"),
    QuotaEntity(None, DEFAULT),
]


@pytest.mark.parametrize("first", range(len(IN_ORDER)))
def test_the_most_specific_quota_holds(quotas, first):
    set_rates(quotas, {entity: 10 + i for i, entity in enumerate(IN_ORDER[first:])})
    assert quotas.max_at_once(PRODUCE, "alice", "app") == 100


def test_a_quota_of_others_does_not_hold(quotas):
    set_rates(
        quotas, {QuotaEntity("bob"): 1, QuotaEntity("alice", "other"): 1, QuotaEntity(None, "other"): 1}
    )
    assert quotas.max_at_once(PRODUCE, "alice", "app") == math.inf
    assert quotas.charge(PRODUCE, "alice", "app", 1e9) == 0.0


def test_a_user_shares_one_quota_among_all_clients(quotas):
    set_rates(quotas, {QuotaEntity("alice"): 10})
    assert quotas.charge(PRODUCE, "alice", "one", 100) == 0.0
    assert quotas.charge(PRODUCE, "alice", "two", 10) == pytest.approx(1.0)


def test_a_default_is_a_quota_of_each(quotas):
    set_rates(quotas, {QuotaEntity(DEFAULT): 10, QuotaEntity(None, DEFAULT): 1})
    assert quotas.charge(PRODUCE, "alice", "app", 200) > 0
    assert quotas.charge(PRODUCE, "bob", "app", 100) == 0.0


def test_a_burst_is_allowed_that_a_whole_window_has_room_for(quotas, time):
    set_rates(quotas, {QuotaEntity("alice"): 10})
    assert quotas.charge(PRODUCE, "alice", "", 100) == 0.0
    # (O - T) / T * W = (11 - 10) / 10 * 10 s
    assert quotas.charge(PRODUCE, "alice", "", 10) == pytest.approx(1.0)
    time.now += 12
    assert quotas.charge(PRODUCE, "alice", "", 100) == 0.0


def test_bytes_are_waited_for_however_long_and_request_time_one_window(quotas):
    entity = QuotaEntity("alice")
    quotas.set(entity, {"producer_byte_rate": "1", "request_percentage": "1"})
    assert quotas.charge(PRODUCE, "alice", "", 1_000_000) == pytest.approx(999_990)
    assert quotas.charge(QuotaKind.REQUEST, "alice", "", 1_000_000) == 1.0


def test_what_is_refused_is_not_counted(quotas, time):
    set_rates(quotas, {QuotaEntity("alice"): 10}, QuotaKind.FETCH)
    fetch = QuotaKind.FETCH
    assert quotas.admit(fetch, "alice", "", 60) == 0.0
    assert quotas.admit(fetch, "alice", "", 60) == pytest.approx(2.0)
    assert quotas.admit(fetch, "alice", "", 60) == pytest.approx(2.0)
    assert quotas.admit(fetch, "alice", "", 40) == 0.0


def test_one_batch_that_is_larger_than_the_window_passes_when_nothing_else_was_read(quotas, time):
    set_rates(quotas, {QuotaEntity("alice"): 10}, QuotaKind.FETCH)
    assert quotas.admit(QuotaKind.FETCH, "alice", "", 5000) == 0.0
    assert quotas.admit(QuotaKind.FETCH, "alice", "", 1) > 400
    time.now += 11
    assert quotas.admit(QuotaKind.FETCH, "alice", "", 5000) == 0.0


def test_a_changed_limit_holds_at_once_and_a_removed_one_no_more(quotas):
    set_rates(quotas, {QuotaEntity("alice"): 10})
    quotas.charge(PRODUCE, "alice", "", 100)
    set_rates(quotas, {QuotaEntity("alice"): 5})
    assert quotas.charge(PRODUCE, "alice", "", 0) > 0
    quotas.set(QuotaEntity("alice"), {"SCRAM-SHA-256": "secret"})
    assert quotas.charge(PRODUCE, "alice", "", 1e9) == 0.0
    assert quotas.is_idle


def test_what_cannot_be_read_limits_nothing(quotas):
    for text in ("", "nan", "-1", "fast", "inf"):
        quotas.set(QuotaEntity("alice"), {"producer_byte_rate": text})
        assert quotas.is_idle


def test_mutations_are_refused_once_the_bucket_is_empty(quotas, time):
    set_rates(quotas, {QuotaEntity("alice"): 1}, QuotaKind.MUTATION)
    budget = quotas.mutations("alice", "", strict=True)
    assert budget.admit(10)
    assert budget.admit(20)  # the last use may take more than there is
    assert not budget.delay()  # and what is admitted as a whole delays nothing else
    assert not budget.admit(1)
    assert budget.delay() == pytest.approx(19)
    time.now += 20
    assert quotas.mutations("alice", "", strict=True).admit(1)


def test_old_clients_are_not_refused_mutations_and_wait_afterwards(quotas):
    set_rates(quotas, {QuotaEntity("alice"): 1}, QuotaKind.MUTATION)
    budget = quotas.mutations("alice", "", strict=False)
    assert not budget.delay()
    assert budget.admit(20)
    assert budget.admit(1)
    assert budget.delay() == pytest.approx(10)


def test_who_has_no_quota_of_mutations_has_no_budget(quotas):
    assert quotas.mutations("alice", "", strict=True) is None


def test_freely_chosen_client_ids_are_forgotten(quotas, time):
    set_rates(quotas, {QuotaEntity(None, DEFAULT): 10})
    for number in range(25_000):
        quotas.charge(PRODUCE, "alice", f"client-{number}", 1)
    assert len(quotas._meters) <= 10_000
    assert len(quotas._found) <= 10_000


steps = st.lists(st.tuples(st.floats(0, 15, allow_nan=False), st.integers(0, 1000)), min_size=1, max_size=60)


@given(steps)
def test_a_rate_counts_what_was_used_in_its_window_and_no_more(uses):
    rate, now = Rate(11, 1.0), 0.0
    recorded = []
    for pause, amount in uses:
        now += pause
        rate.record(amount, now)
        recorded.append((now, amount))
        measured = rate.measure(now)
        surely = sum(a for at, a in recorded if now - at < 9.99)
        at_most = sum(a for at, a in recorded if now - at < 11.01)
        assert surely / 11 - 1e-6 <= measured <= at_most / 10 + 1e-6


@given(steps, st.integers(1, 100))
def test_who_waits_as_told_stays_near_the_limit(uses, limit):
    rate, now = Rate(11, 1.0), 0.0
    total = 0.0
    for _, amount in uses:
        rate.record(amount, now)
        total += amount
        now += rate.delay(limit, now)
    # A burst that was waited for is forgotten, and the next one counts from an empty window, as in Kafka.
    assert total <= 2 * limit * (now + 11) + 1000


@given(st.lists(st.tuples(st.floats(0, 30), st.integers(0, 50)), max_size=50))
def test_a_bucket_never_gives_more_than_its_burst_and_what_flows_in(uses):
    now = 0.0
    bucket = TokenBucket(2.0, 11.0, now)
    used = 0
    for pause, amount in uses:
        now += pause
        if bucket.delay(now) == 0:
            bucket.consume(amount, now)
            used += amount
    assert used <= 22 + 2 * now + 50 + 1e-6
