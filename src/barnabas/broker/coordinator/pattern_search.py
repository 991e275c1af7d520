"""Finds the names that match a client's regular expression, without blocking the event loop.

RE2 takes time linear in the text, but the factor depends on the size of the expression. ``(a?){1000}!`` takes
milliseconds for one name of 200 characters. A thread matches such expressions, because RE2 releases the GIL.
The thread matches some names of one search, then some of the next, so no search blocks the others for long.
The event loop matches expressions of usual size, in slices: a thread would wait for the GIL after each name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from barnabas.base.environment.blocking import Blocking
from barnabas.base.environment.process import thread_seconds
from barnabas.broker.config.patterns import compiled

#: the most CPU time of one search, in seconds
MAX_SECONDS = 5.0
#: The most steps in one slice on the event loop. A step is one instruction of the compiled expression for one
#: character. It takes ten nanoseconds at most.
_STEPS_A_TURN = 200_000
#: the most steps of one search in the thread before it continues another search
_STEPS_AT_ONCE = 2_000_000
#: the most names in one slice, even if they are short
_NAMES = 1000


class CostlyPatternError(Exception):
    """A search was stopped because it took more CPU time than `MAX_SECONDS`."""


class PatternSearch:
    """Runs the searches of one broker: small ones on the event loop, others in one thread."""

    def __init__(self, blocking: Blocking) -> None:
        self._thread = blocking.pool("regular expressions", 1)

    async def find(self, pattern: str, names: Sequence[str]) -> list[str]:
        """Return the names in `names` that match the whole pattern.

        Raises:
            ValueError: the pattern is not valid in RE2.
            CostlyPatternError: the search takes more than `MAX_SECONDS` of CPU time.
        """
        expression = compiled(pattern)
        size: int = expression.programsize
        found: list[str] = []
        spent = 0.0
        if size * max(map(len, names), default=0) <= _STEPS_A_TURN:
            for some in _pieces(names, size, _STEPS_A_TURN):
                found += _matching(expression.fullmatch, some)
                await asyncio.sleep(0)
            return found
        for some in _pieces(names, size, _STEPS_AT_ONCE):
            matching, seconds = await self._thread.run(_match, expression.fullmatch, some)
            found += matching
            spent += seconds
            if spent > MAX_SECONDS:
                raise CostlyPatternError(f"it takes more than {MAX_SECONDS:g} seconds to match all names")
        return found

    def stop(self) -> None:
        """Start no more work in the thread. Searches that wait for it are cancelled."""
        self._thread.abandon()


def _match(matches: Callable[[str], Any], names: Sequence[str]) -> tuple[list[str], float]:
    """Return the names for which `matches` is true, and the CPU time of the search in seconds."""
    began = thread_seconds()
    return _matching(matches, names), thread_seconds() - began


def _matching(matches: Callable[[str], Any], names: Sequence[str]) -> list[str]:
    return [name for name in names if matches(name) is not None]


def _pieces(names: Sequence[str], size: int, max_steps: int) -> Iterator[Sequence[str]]:
    """Yield slices of `names`. A search in one slice takes at most `max_steps` steps.

    A name takes its number of characters times `size` steps. `size` is the number of instructions in the
    compiled expression. A slice has at least one name, and at most `_NAMES` names. A slice of one
    name may take more steps than `max_steps`.
    """
    start, steps = 0, 0
    for end, name in enumerate(names):
        more = size * len(name)
        if end > start and (steps + more > max_steps or end - start == _NAMES):
            yield names[start:end]
            start, steps = end, 0
        steps += more
    if start < len(names):
        yield names[start:]
