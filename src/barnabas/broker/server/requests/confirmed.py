"""Answers that must not be stale: they wait until this broker knows that it led when they were asked for.

While the broker is sure of its session with the metadata store, its requests take the same path as without
this. Else the handler runs at once, in the order in which requests came, and its answer (or its error) waits
for `ReadIndex`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.answers import Answer, continued, is_pending
from barnabas.broker.server.requests.context import Handle, RequestContext
from barnabas.broker.server.requests.leadership import PartitionsOf
from barnabas.kafka.protocol.schema import Request, Response


class Confirmation(Protocol):
    """Says whether this broker leads what it believes to lead (`ReadIndex`)."""

    is_certain: Callable[[], bool]

    def confirm(self, partitions: Iterable[TopicPartition]) -> asyncio.Future[bool] | None:
        """Wait until it is proven that no other broker leads (`ReadIndex.confirm`)."""


def confirmed(
    handle: Handle, confirmation: Confirmation, partitions_of: PartitionsOf, refusal: ErrorCode
) -> Handle:
    """`handle`, whose answers contain only what held when the request came.

    Args:
        partitions_of: names the partitions whose leader alone may answer a request.
        refusal: the error for a broker that cannot tell whether it leads them.
    """

    def confirm_and_handle(context: RequestContext, request: Request) -> Answer[Response | None]:
        if confirmation.is_certain():
            return handle(context, request)
        confirming = confirmation.confirm(partitions_of(request))
        if confirming is None:
            return handle(context, request)
        answer: Answer[Response | None] = None
        failure = None
        try:
            answer = handle(context, request)
        except KafkaError as error:
            failure = error
        working = answer
        if is_pending(answer):
            working = asyncio.ensure_future(answer)  # it goes on whatever becomes of the confirmation
            working.add_done_callback(_read)
        return continued(answer, _held_back(confirming, working, failure, refusal))

    return confirm_and_handle


async def _held_back(
    confirming: asyncio.Future[bool],
    answer: Answer[Response | None],
    failure: KafkaError | None,
    refusal: ErrorCode,
) -> Response | None:
    try:
        await confirming
    except KafkaError as error:
        raise KafkaError(refusal, error.message) from error
    if failure is not None:
        raise failure
    return await answer if is_pending(answer) else answer


def _read(answer: asyncio.Future[Response | None]) -> None:
    """Read the error of an answer: the request that waited for it may be gone."""
    if not answer.cancelled():
        answer.exception()
