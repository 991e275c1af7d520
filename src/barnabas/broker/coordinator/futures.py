"""Resolves the futures of answers. If the waiting request was cancelled, its future is done already."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from barnabas.broker.answers import Answer, is_pending

T = TypeVar("T")


def resolve(reply: asyncio.Future[T], answer: Answer[T]) -> None:
    """Give `reply` the answer, or let it follow the future that the answer is."""
    if is_pending(answer):
        asyncio.ensure_future(answer).add_done_callback(lambda done: _follow(reply, done))
    elif not reply.done():
        reply.set_result(answer)


def fail(reply: asyncio.Future[Any], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)


def _follow(reply: asyncio.Future[T], done: asyncio.Future[T]) -> None:
    if reply.done():
        return
    if done.cancelled():
        reply.cancel()
    elif (error := done.exception()) is not None:
        reply.set_exception(error)
    else:
        reply.set_result(done.result())
