"""ListTransactions: each filter alone."""

from __future__ import annotations

import uuid

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_transactions import ListTransactionsRequest


@pytest.fixture
def names(wire):
    """Create producers for two transactional ids."""
    prefix = uuid.uuid4().hex
    wire(FindCoordinatorRequest(coordinator_keys=[prefix], key_type=1))
    made = {}
    for suffix in ("a", "b"):
        answer = wire(InitProducerIdRequest(transactional_id=prefix + suffix, transaction_timeout_ms=1000))
        assert answer.error_code == 0
        made[prefix + suffix] = answer.producer_id
    return made


def listed(wire, **filters):
    answer = wire(ListTransactionsRequest(**filters))
    assert answer.error_code == 0
    return {state.transactional_id for state in answer.transaction_states}


def test_everything_is_listed_without_a_filter(wire, names):
    assert names.keys() <= listed(wire)


def test_by_producer(wire, names):
    (first, producer_id), _ = names.items()
    assert listed(wire, producer_id_filters=[producer_id]) == {first}


def test_by_state(wire, names):
    assert names.keys() <= listed(wire, state_filters=["Empty", "Ongoing"])
    assert not names.keys() & listed(wire, state_filters=["Ongoing"])


def test_by_pattern_of_the_whole_id(wire, names):
    first, second = names
    assert listed(wire, transactional_id_pattern=first[:-1] + ".") == {first, second}
    assert listed(wire, transactional_id_pattern=first[:-1]) == set()


def test_pattern_that_is_none_is_refused(wire, names):
    answer = wire(ListTransactionsRequest(transactional_id_pattern="("))
    assert answer.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION


def test_states_nobody_knows_are_named(wire, names):
    answer = wire(ListTransactionsRequest(state_filters=["Dead", "Alive"]))
    assert answer.unknown_state_filters == ["Alive"]
