"""Answers that may be there at once or later."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")


def mapped(answer: T | Awaitable[T], transform: Callable[[T], R]) -> R | Awaitable[R]:
    """`transform` of the answer: at once, without a task, when the answer is there."""
    if isinstance(answer, Awaitable):
        return _mapped_later(answer, transform)
    return transform(answer)


async def _mapped_later(answer: Awaitable[T], transform: Callable[[T], R]) -> R:
    return transform(await answer)
