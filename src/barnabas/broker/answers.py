"""Immediate and later answers: the type of an answer says which, and what may happen meanwhile.

Most operations of a broker answer in the turn of the event loop in which they are asked. A task or a future
for each would cost more than many of them. An operation that may have to wait returns `Answer[T]`:

| type | the operation | the next request of the connection |
|---|---|---|
| `T` | has answered | begins |
| a coroutine, any other future | is still at work | waits |
| `LongAnswer[T]` | is at work in slices; its answer may be long | waits |
| `SecondPhase[T]` | has had all its effects, and waits to be acknowledged | begins if it is of the same API |
| `LongPoll[T]` | waits for something new | makes it answer at once |

This module alone tells an answer from something to await.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")
R = TypeVar("R")

#: an answer that is there, or one to await
Answer: TypeAlias = T | Awaitable[T]


class LongAnswer(Generic[T]):
    """An answer that is made in slices, and that may be long: it is encoded in a thread.

    Args:
        work: makes the answer.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()


class SecondPhase(asyncio.Future[T]):
    """The answer to a request that has had all its effects, and only waits to be acknowledged."""

    def __init__(self) -> None:
        super().__init__(loop=asyncio.get_running_loop())


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


#: the types that are awaited. A check for the abstract class instead takes five times as long
_PENDING = (asyncio.Future, CoroutineType, LongAnswer)


def is_pending(answer: Answer[T]) -> TypeIs[Awaitable[T]]:
    """Whether the answer has to be awaited."""
    return isinstance(answer, _PENDING)


def then(answer: Answer[T], transform: Callable[[T], R]) -> Answer[R]:
    """`transform` of the answer: at once, without a task, when the answer is there."""
    if is_pending(answer):
        return continued(answer, _then(answer, transform))
    return transform(answer)


def continued(answer: object, rest: Coroutine[Any, Any, R]) -> Awaitable[R]:
    """`rest`, which awaits `answer`: a long answer stays one."""
    return LongAnswer(rest) if isinstance(answer, LongAnswer) else rest


async def settled(answer: Answer[T]) -> T:
    """The answer, when it is there."""
    return await answer if is_pending(answer) else answer


async def _then(answer: Awaitable[T], transform: Callable[[T], R]) -> R:
    return transform(await answer)
