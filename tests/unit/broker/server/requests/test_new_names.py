"""The number of groups and transactional ids that one principal may create."""

from __future__ import annotations

import logging

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.requests.new_names import NewNames
from barnabas.kafka.security.principal import Principal

ALICE, BOB = Principal("alice"), Principal("bob")


class World:
    """The existing names, and the limit."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.existing: set[str] = set()
        self.elsewhere: set[str] = set()
        self.names = NewNames("groups", "barnabas.groups.per.principal", lambda: self.limit, self.exists)

    def exists(self, name: str) -> bool | None:
        return None if name in self.elsewhere else name in self.existing

    def use(self, principal: Principal, name: str) -> None:
        self.names.admit(principal, name)
        self.existing.add(name)

    def refuses(self, principal: Principal, name: str) -> bool:
        try:
            self.use(principal, name)
        except KafkaError as error:
            assert error.code is ErrorCode.POLICY_VIOLATION
            return True
        return False


def test_one_name_more_is_refused_to_that_principal_alone(caplog: pytest.LogCaptureFixture) -> None:
    world = World(3)
    with caplog.at_level(logging.WARNING):
        assert [world.refuses(ALICE, f"a{number}") for number in range(5)] == [False] * 3 + [True] * 2
    assert not world.refuses(BOB, "a0")
    assert not world.refuses(BOB, "b0")
    told = [record.getMessage() for record in caplog.records if "refusing groups" in record.getMessage()]
    assert told == ["refusing groups of User:alice: it already created 3 (barnabas.groups.per.principal)"]


def test_what_exists_or_is_kept_by_another_broker_is_used_by_everybody() -> None:
    world = World(1)
    world.existing |= {f"old{number}" for number in range(10)}
    world.elsewhere |= {f"far{number}" for number in range(10)}
    assert not world.refuses(ALICE, "own")
    for number in range(10):
        assert not world.refuses(ALICE, f"old{number}")
        assert not world.refuses(ALICE, f"far{number}")
    assert not world.refuses(ALICE, "own")
    assert world.refuses(ALICE, "another")


def test_names_that_have_gone_make_room() -> None:
    world = World(300)
    for number in range(300):
        world.use(ALICE, f"a{number}")
    assert world.refuses(ALICE, "one more")
    world.existing -= {"a250", "a251"}
    # of many names some are looked at for each that is refused
    assert [world.refuses(ALICE, "one more") for _ in range(3)].count(False) >= 1
    assert not world.refuses(ALICE, "two more")
    assert world.refuses(ALICE, "three more")


def test_a_bound_that_is_raised_holds_at_once() -> None:
    world = World(1)
    world.use(ALICE, "a")
    assert world.refuses(ALICE, "b")
    world.limit = 2
    assert not world.refuses(ALICE, "b")
