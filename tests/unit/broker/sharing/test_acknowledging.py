"""A partition that one request names twice: the second acknowledgements are an error, never a silent loss."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from typing import Any

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.sharing.acknowledging import Acknowledging
from barnabas.broker.sharing.in_flight import ACCEPT, Acknowledgement
from barnabas.broker.sharing.sessions import Member, Target

MEMBER = Member("workers", "w1")
TOPIC = uuid.UUID(int=1)


class _Partition:
    def __init__(self) -> None:
        self.applied: list[Acknowledgement] = []

    def acknowledge(self, member_id: str, acknowledgements: Sequence[Acknowledgement]) -> None:
        self.applied += acknowledgements


class _Partitions:
    def __init__(self) -> None:
        self.partition = _Partition()

    def get(self, *names: Any) -> _Partition:
        return self.partition


@pytest.fixture
def partitions() -> _Partitions:
    return _Partitions()


def acknowledge(partitions: Any, *targets: Target) -> dict[Target, ErrorCode | None]:
    """Acknowledge offset 0, 1, ... of the targets in one request, and return the error of each target."""
    by_target = [(target, [Acknowledgement(n, n, [ACCEPT])]) for n, target in enumerate(targets)]
    acknowledging = Acknowledging(MEMBER, partitions, lambda target: None, True, by_target)
    for _ in acknowledging.steps():
        pass
    return {target: error and error.code for target, error in acknowledging.outcomes.items()}


def test_a_partition_named_twice_gets_an_error_although_its_first_acknowledgements_are_applied(
    partitions: _Partitions,
) -> None:
    twice, once = Target(TOPIC, 0), Target(TOPIC, 1)
    outcomes = acknowledge(partitions, twice, once, twice)
    assert outcomes == {twice: ErrorCode.INVALID_REQUEST, once: None}
    assert [each.first for each in partitions.partition.applied] == [0, 1]
