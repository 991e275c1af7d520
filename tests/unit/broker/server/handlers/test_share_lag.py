"""The lag of a share group in a partition (KIP-1226)."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator import ShareState
from barnabas.broker.server.handlers.describe_share_group_offsets import described


@pytest.mark.parametrize(
    ("start", "finished", "end", "lag"),
    [
        (10, 0, 25, 15),
        (10, 4, 25, 11),
        (10, 15, 25, 0),
        (10, 0, 8, 0),  # the log was truncated
        (10, -1, 25, -1),
        (10, 4, None, -1),
        (-1, -1, None, -1),
    ],
)
def test_the_lag_is_what_is_not_finished_up_to_the_high_watermark(start, finished, end, lag):
    answer = described(3, ShareState(1, 7, start, finished), end)
    assert (answer.partition_index, answer.start_offset, answer.leader_epoch, answer.lag) == (
        3,
        start,
        7,
        lag,
    )


def test_a_partition_whose_state_cannot_be_read_has_the_error():
    answer = described(3, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "later"), 5)
    assert (answer.error_code, answer.error_message) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, "later")
    assert (answer.start_offset, answer.leader_epoch, answer.lag) == (-1, -1, -1)
