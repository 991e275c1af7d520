"""How a fenced producer is told so (KIP-588): older clients know only INVALID_PRODUCER_EPOCH."""

from __future__ import annotations

from barnabas.errors import ErrorCode, KafkaError


def fenced_since(first_version: int, version: int, error: KafkaError) -> KafkaError:
    """The error as a request of `version` may be answered, when PRODUCER_FENCED came in `first_version`."""
    if error.code is ErrorCode.PRODUCER_FENCED and version < first_version:
        return KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.message)
    return error
