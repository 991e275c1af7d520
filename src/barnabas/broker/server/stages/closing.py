"""Makes a stage, which is a context manager, from a function that opens the parts of the stage."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import update_wrapper
from types import TracebackType
from typing import Concatenate, Generic, ParamSpec, TypeVar

from barnabas.base.text import logger_of

log = logger_of(__name__)

P = ParamSpec("P")
T = TypeVar("T")

Close = Callable[[], Awaitable[None] | None]


class Closing:
    """Collects the functions that close the parts of a stage."""

    def __init__(self) -> None:
        self._closes: list[Close] = []

    def add(self, close: Close) -> None:
        """Register a function to call when the stage closes.

        The function can return an awaitable, which `close` then awaits.
        """
        self._closes.append(close)

    async def close(self) -> None:
        """Close all parts, the last one first.

        If a part cannot close, log the error and close the other parts.
        """
        while self._closes:
            try:
                pending = self._closes.pop()()
                if pending is not None:
                    await pending
            except Exception as error:
                log.error(
                    "a part of the broker could not be stopped: %s: %s",
                    type(error).__name__,
                    error,
                    exc_info=log.isEnabledFor(logging.DEBUG),
                )


class _Stage(AbstractAsyncContextManager[T], Generic[T]):
    """A context manager that opens the parts of a stage on entry, and closes them on exit.

    It is not an async generator, because an event loop closes its generators when the loop ends. This would
    close the parts of a broker that a simulation has killed.
    """

    def __init__(self, opening: Callable[[Closing], Awaitable[T]]) -> None:
        self._opening = opening
        self._closing = Closing()

    async def __aenter__(self) -> T:
        try:
            return await self._opening(self._closing)
        except GeneratorExit:  # the event loop is gone: no part can be awaited
            raise
        except BaseException:
            await self._closing.close()
            raise

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if exc_type is not GeneratorExit:
            await self._closing.close()


def stage(
    opening: Callable[Concatenate[Closing, P], Awaitable[T]],
) -> Callable[P, AbstractAsyncContextManager[T]]:
    """Decorate `opening`, so that it returns a context manager that opens the parts of a stage.

    `opening` adds a function to its `Closing` for each part that it opens. The context manager calls these
    functions at its exit, and also if `opening` fails.
    """

    def make(*below: P.args, **named: P.kwargs) -> AbstractAsyncContextManager[T]:
        return _Stage(lambda closing: opening(closing, *below, **named))

    return update_wrapper(make, opening)
