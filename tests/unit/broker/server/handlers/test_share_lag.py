"""The lag of a share group in a partition (KIP-1226)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.coordinator import ShareState
from barnabas.broker.server.handlers import describe_share_group_offsets
from barnabas.broker.server.handlers.describe_share_group_offsets import Bounds, described


@pytest.mark.parametrize(
    ("start", "finished", "bounds", "lag"),
    [
        (10, 0, Bounds(0, 25), 15),
        (10, 4, Bounds(0, 25), 11),
        (10, 15, Bounds(0, 25), 0),
        (10, 0, Bounds(0, 8), 0),  # the log was truncated
        (10, -1, Bounds(0, 25), -1),
        (10, 4, None, -1),
        (-1, -1, None, -1),
        (10, 0, Bounds(20, 25), 5),  # records were deleted, and no state was stored since then
        (10, 4, Bounds(20, 25), 5),
        (10, 12, Bounds(20, 25), 3),
        (10, 0, Bounds(25, 25), 0),
    ],
)
def test_the_lag_is_what_is_not_finished_up_to_the_high_watermark(start, finished, bounds, lag):
    answer = described(3, ShareState(1, 7, start, finished), bounds)
    assert (answer.partition_index, answer.start_offset, answer.leader_epoch, answer.lag) == (
        3,
        start,
        7,
        lag,
    )


def test_a_partition_whose_state_cannot_be_read_has_the_error():
    answer = described(3, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "later"), Bounds(0, 5))
    assert (answer.error_code, answer.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "later")
    assert (answer.start_offset, answer.leader_epoch, answer.lag) == (-1, -1, -1)


def test_a_log_start_that_the_leader_does_not_tell_is_unknown_and_not_zero(monkeypatch):
    first, second = TopicPartition("t", 0), TopicPartition("t", 1)

    def answering(offsets):
        async def ask(peers, image, partitions):
            return offsets

        return ask

    monkeypatch.setattr(describe_share_group_offsets, "ask_starts", answering({first: 20}))
    monkeypatch.setattr(describe_share_group_offsets, "ask_ends", answering({first: 25, second: 25}))
    monkeypatch.setattr(describe_share_group_offsets, "_known_bounds", lambda replicas, partition: None)
    ports = SimpleNamespace(replicas=None, peers=None, view=SimpleNamespace(image=None))
    states = dict.fromkeys((first, second), ShareState(1, 7, 10, 0))
    found = asyncio.run(describe_share_group_offsets._bounds(ports, states))
    assert found == {first: Bounds(20, 25)}
