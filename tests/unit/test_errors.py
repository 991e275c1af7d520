"""The properties of error codes on which other code depends."""

import pytest

from barnabas.base.errors import ErrorCode, KafkaError


def test_codes_are_contiguous_from_minus_one() -> None:
    assert sorted(ErrorCode) == list(range(-1, 134))


@pytest.mark.parametrize("code", [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_errors_of_a_moving_cluster_are_retriable(code: ErrorCode) -> None:
    assert code.retriable


def test_kafka_error_without_a_message_tells_the_codes_own() -> None:
    assert KafkaError(ErrorCode.INVALID_REQUEST).message == ErrorCode.INVALID_REQUEST.doc
