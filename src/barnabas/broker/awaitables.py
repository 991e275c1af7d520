"""`MaybeAwaitable[T]`: the result of an operation, or an awaitable that gives the result later.

Most operations of a broker return their result at once. To create a task or a future for each operation would
cost more than many of the operations. So an operation that sometimes has to wait returns `MaybeAwaitable[T]`.
Its type says whether the operation is complete, and when the next request of the connection begins:

| type | the operation | the next request of the connection |
|---|---|---|
| `T` | is complete | begins |
| a coroutine, any other future | is not complete | waits |
| `LongResponse[T]` | makes its response, which may be long, in several turns of the event loop | waits |
| `SecondPhase[T]` | has made all its changes; its response waits | begins if it has the same API key |
| `LongPoll[T]` | waits for new data | makes the long poll respond at once |

Only this module decides whether an object is a result or an awaitable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Generator
from types import CoroutineType
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from barnabas.base.errors import KafkaError

if TYPE_CHECKING:
    from typing_extensions import TypeIs

T = TypeVar("T")
R = TypeVar("R")

#: a result, or an awaitable of it
MaybeAwaitable: TypeAlias = T | Awaitable[T]


class LongResponse(Generic[T]):
    """An awaitable response that a handler makes in several turns of the event loop.

    A thread encodes the response, because it may be long.

    Args:
        work: coroutine that returns the response.
    """

    __slots__ = ("_work",)

    def __init__(self, work: Coroutine[Any, Any, T]) -> None:
        self._work = work

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()


class PromptFuture(asyncio.Future[T]):
    """A future that calls the callbacks of `call_at_once` as soon as it is done.

    The methods that set its result or exception, or cancel it, call these callbacks before they return. A
    callback of `add_done_callback` is called only in the next turn of the event loop, and costs a handle of
    the loop.
    """

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        super().__init__(loop=loop)
        self._prompt: list[Callable[[asyncio.Future[T]], object]] = []

    def call_at_once(self, callback: Callable[[asyncio.Future[T]], object]) -> None:
        """Call `callback` with this future as soon as the future is done.

        If it is done already, call `callback` in the next turn of the event loop.
        """
        if self.done():
            self.add_done_callback(callback)
        else:
            self._prompt.append(callback)

    def set_result(self, result: T) -> None:
        super().set_result(result)
        self._call()

    def set_exception(self, exception: type | BaseException) -> None:
        super().set_exception(exception)
        self._call()

    def cancel(self, msg: object = None) -> bool:
        is_cancelled = super().cancel(msg)
        self._call()
        return is_cancelled

    def _call(self) -> None:
        callbacks, self._prompt = self._prompt, []
        for callback in callbacks:
            try:
                callback(self)
            except Exception as error:
                context = {"message": "a callback of a future has failed", "exception": error, "future": self}
                self.get_loop().call_exception_handler(context)


class SecondPhase(PromptFuture[T]):
    """A future of the response to a request that has already changed all that it changes.

    Only the response waits, for example until other replicas have the records of a produce request.
    """


class LongPoll(PromptFuture[T]):
    """A future of the response to a request that waits for new data. The wait can be ended at any time.

    Args:
        patient_with: the key of an API whose requests do not end the wait; None if every request ends it.
    """

    def __init__(self, patient_with: int | None = None) -> None:
        super().__init__()
        self._patient_with = patient_with
        self._end: Callable[[], object] | None = None

    def ended_by(self, end: Callable[[], object]) -> None:
        """Set the function that ends the wait. `end` sets the future's result to the data that is present."""
        self._end = end
        self.call_at_once(LongPoll._forget)

    def give_way(self, api_key: int) -> None:
        """End the wait, because a request of the API `api_key` is next on the connection.

        Do nothing if the constructor's `patient_with` is this API.
        """
        if self._end is not None and api_key != self._patient_with:
            self._end()

    @staticmethod
    def _forget(poll: asyncio.Future[T]) -> None:
        assert isinstance(poll, LongPoll)
        poll._end = None


#: the types of awaitables. An `isinstance` check for the abstract class `Awaitable` takes five times as long
_AWAITABLES = (asyncio.Future, CoroutineType, LongResponse)


def is_awaitable(result: MaybeAwaitable[T]) -> TypeIs[Awaitable[T]]:
    """Whether the caller must await `result`."""
    return isinstance(result, _AWAITABLES)


def then(result: MaybeAwaitable[T], transform: Callable[[T], R]) -> MaybeAwaitable[R]:
    """Return `transform(result)`.

    If `result` is awaitable, return an awaitable that waits for its value, and then gives `transform(value)`.
    """
    if is_awaitable(result):
        return continued(result, _then(result, transform))
    return transform(result)


def continued(result: object, rest: Coroutine[Any, Any, R]) -> Awaitable[R]:
    """Return `rest`, a coroutine that awaits `result`.

    If `result` is a `LongResponse`, make the return value one too.
    """
    return LongResponse(rest) if isinstance(result, LongResponse) else rest


def recovered(
    operation: Callable[[], MaybeAwaitable[T]], refused: Callable[[KafkaError], T]
) -> MaybeAwaitable[T]:
    """Return the result of `operation`. If it raises KafkaError `error`, return `refused(error)`.

    This also applies to an error that an awaitable result raises later.
    """
    try:
        result = operation()
    except KafkaError as error:
        return refused(error)
    return continued(result, _recovered(result, refused)) if is_awaitable(result) else result


async def resolve(result: MaybeAwaitable[T]) -> T:
    """Return the result, after a wait if `result` is awaitable."""
    return await result if is_awaitable(result) else result


async def _recovered(result: Awaitable[T], refused: Callable[[KafkaError], T]) -> T:
    try:
        return await result
    except KafkaError as error:
        return refused(error)


async def _then(result: Awaitable[T], transform: Callable[[T], R]) -> R:
    return transform(await result)
