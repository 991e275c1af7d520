"""Waits with a time limit that excludes stalls of this process."""

from __future__ import annotations

import asyncio
from typing import Any

#: a wait has parts of so many seconds
_PART = 0.5
#: a part that ends later by so many seconds was one in which the process stood still
_LATE = 0.1
#: what counts of such a part: no process waits for ever
_OF_A_STALL = 0.25


class Patience:
    """A time limit for waits, in seconds.

    When a stopped process continues (after SIGSTOP, or on a suspended machine), its timers are overdue. The
    result may arrive in the next moment. So a wait must check for the result before it gives up.
    """

    def __init__(self, seconds: float) -> None:
        self._left = seconds

    async def wait(self, future: asyncio.Future[Any]) -> bool:
        """Wait for a future, without cancelling it. Return False if the time limit is over."""
        loop = asyncio.get_running_loop()
        while not future.done() and self._left > 0:
            began, part = loop.time(), min(_PART, self._left)
            await asyncio.wait({future}, timeout=part)
            passed = loop.time() - began
            if not future.done():  # a part too short for the clock would never pass
                passed = max(passed, part)
            self._left -= _OF_A_STALL * part if passed > part + _LATE else passed
        return future.done()
