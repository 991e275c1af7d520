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


class LongPoll(asyncio.Future[T]):
    """An answer that waits for something new, and that can be had at once: with what there is.

    Args:
        patient_with: the key of an API that it does not give way to; None to give way to all.
    """

    def __init__(self, patient_with: int | None = None) -> None:
        super().__init__(loop=asyncio.get_running_loop())
        self._patient_with = patient_with
        self._end: Callable[[], object] | None = None

    def ended_by(self, end: Callable[[], object]) -> None:
        """From now on `end` can settle it, whatever there is."""
        self._end = end
        self.add_done_callback(LongPoll._forget)

    def give_way(self, api_key: int) -> None:
        """A request of that API waits for this answer."""
        if self._end is not None and api_key != self._patient_with:
            self._end()

    @staticmethod
    def _forget(poll: asyncio.Future[T]) -> None:
        assert isinstance(poll, LongPoll)
        poll._end = None


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
