"""Delays responses until this broker has proved that it led the partitions when the request arrived.

This prevents stale responses. While the broker is certain of its leaderships, a request needs no
confirmation. While the broker is not certain, the handler still runs at once, so that the broker executes
requests in their order. The response or error then waits for the proof by `ReadIndex`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.awaitables import MaybeAwaitable, continued, is_awaitable
from barnabas.broker.metadata import MetadataLoader
from barnabas.broker.server.requests.context import Handle, RequestContext
from barnabas.broker.server.requests.leadership import PartitionsOf
from barnabas.kafka.protocol.schema import Request, Response

T = TypeVar("T")


class Confirmation(Protocol):
    """Proves that this broker still leads its partitions. `ReadIndex` implements it."""

    def confirm(self, partitions: Iterable[TopicPartition]) -> asyncio.Future[bool] | None:
        """Prove that this broker leads these partitions at the time of this call.

        Return a future with the result True, which is done when the proof is complete. Return None if no
        proof is necessary. The future raises KafkaError if the proof fails (`ReadIndex.confirm`).
        """


def confirmed(
    handle: Handle,
    loader: MetadataLoader,
    confirmation: Confirmation,
    partitions_of: PartitionsOf,
    refusal: ErrorCode,
) -> Handle:
    """Wrap `handle` so that its responses contain only state that was valid when the request arrived.

    The handler always runs at once. The response waits for the proof of the leadership in these cases:

    - This broker's session with the metadata store has possibly ended.
    - The state of one of the partitions is damaged in the store.

    Args:
        handle: the handler of the API.
        loader: tells which leaderships are in doubt.
        confirmation: proves the leaderships that are in doubt.
        partitions_of: returns the partitions whose leader must answer the request.
        refusal: error of the request if the proof fails.
    """

    def confirm_and_handle(context: RequestContext, request: Request) -> MaybeAwaitable[Response | None]:
        if loader.is_certain and not loader.has_damage:
            return handle(context, request)
        confirming = confirmation.confirm(loader.in_doubt(partitions_of(request)))
        return held_back(confirming, lambda: handle(context, request), refusal)

    return confirm_and_handle


def held_back(
    confirming: asyncio.Future[bool] | None, work: Callable[[], MaybeAwaitable[T]], refusal: ErrorCode
) -> MaybeAwaitable[T]:
    """Call `work` at once. Return an awaitable of its result or error, which waits for `confirming`.

    If `confirming` fails, the awaitable raises KafkaError `refusal`. A failure does not stop `work`. If
    `confirming` is None, no proof is necessary: return the result of `work` as it is.
    """
    if confirming is None:
        return work()
    answer: Any = None
    failure = None
    try:
        answer = work()
    except KafkaError as error:
        failure = error
    working = answer
    if is_awaitable(answer):
        working = asyncio.ensure_future(answer)
        working.add_done_callback(_read)
    return continued(answer, _held_back(confirming, working, failure, refusal))


async def _held_back(
    confirming: asyncio.Future[bool], answer: Any, failure: KafkaError | None, refusal: ErrorCode
) -> Any:
    try:
        await confirming
    except KafkaError as error:
        raise KafkaError(refusal, error.message) from error
    if failure is not None:
        raise failure
    return await answer if is_awaitable(answer) else answer


def _read(answer: asyncio.Future[Any]) -> None:
    """Retrieve the exception of a future that nothing may await, so that asyncio does not report it."""
    if not answer.cancelled():
        answer.exception()
