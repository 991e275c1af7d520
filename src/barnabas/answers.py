"""Answers that are there at once, or later.

Most operations of a broker answer in the turn of the event loop in which they are asked; a task or a future
for each would cost more than many of them. So what may have to wait, but mostly need not, returns
`Answer[T]`: the answer itself, or something to await. This module alone tells one from the other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import CoroutineType
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")
R = TypeVar("R")

#: an answer that is there, or one to await
Answer: TypeAlias = T | Awaitable[T]

#: what is awaited here. To ask for the abstract class instead takes five times as long
_PENDING = (asyncio.Future, CoroutineType)


def is_pending(answer: Answer[T]) -> TypeIs[Awaitable[T]]:
    """Whether the answer has to be awaited."""
    return isinstance(answer, _PENDING)


def then(answer: Answer[T], transform: Callable[[T], R]) -> Answer[R]:
    """`transform` of the answer: at once, without a task, when the answer is there."""
    if is_pending(answer):
        return _then(answer, transform)
    return transform(answer)


async def settled(answer: Answer[T]) -> T:
    """The answer, when it is there."""
    return await answer if is_pending(answer) else answer


async def _then(answer: Awaitable[T], transform: Callable[[T], R]) -> R:
    return transform(await answer)
