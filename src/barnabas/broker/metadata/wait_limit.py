"""Waits with a time limit that excludes stalls of this process."""

from __future__ import annotations

import asyncio
from typing import Any

#: a wait is divided into parts of this length, in seconds
_PART = 0.5
#: if a part ends later by this time, in seconds, the process has stood still
_LATE = 0.1
#: the share of such a part that counts, so that every wait ends
_OF_A_STALL = 0.25


class WaitLimit:
    """A time limit for waits. A stall of this process uses up only a small part of it.

    All calls of `wait` together may take `seconds`.
    When a stopped process continues (after SIGSTOP, or on a suspended machine), its timers are overdue, and
    the result may arrive in the next moment. So the wait goes on after the stall.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    @property
    def is_used_up(self) -> bool:
        """Whether no time is left: a call of `wait` would return at once."""
        return self._left <= 0

    async def wait(self, future: asyncio.Future[Any]) -> bool:
        """Wait for `future`, without cancelling it. Return whether it is done within the time limit."""
        loop = asyncio.get_running_loop()
        while not (future.done() or self.is_used_up):
            began, part = loop.time(), min(_PART, self._left)
            await asyncio.wait({future}, timeout=part)
            passed = loop.time() - began
            if not future.done():  # a part too short for the clock would never pass
                passed = max(passed, part)
            self._left -= _OF_A_STALL * part if passed > part + _LATE else passed
        return future.done()
