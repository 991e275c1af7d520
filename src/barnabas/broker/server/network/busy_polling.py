"""Polls for the next request for a short time before the event loop sleeps, as long as this saves time.

The system needs about as long to wake a sleeping core as the broker needs to serve a small request. A client
that waits for each response sends its next request sooner than that. ADR 7 has the measurements.
"""

from __future__ import annotations

from collections.abc import Callable

#: How many iterations of the event loop a poll lasts: about 80 µs.
ITERATIONS = 120
#: The credit that a trial begins with. A poll that finds a request earns 1, one that finds none costs 2.
CREDIT = 64
#: The highest credit; a trial that reaches it has succeeded.
MAX_CREDIT = 128
#: How many requests are served without polling once the credit is used up, ...
MIN_PAUSE = 64
#: ... twice as many each time, up to this.
MAX_PAUSE = 8192


class BusyPolling:
    """Keeps an event loop awake for about 80 µs after each request.

    Use it only in a process without other busy threads, because polling keeps the GIL from them.

    If more than about a third of the polls end without a request, polling pauses for 64 requests. Then a
    trial of about 32 polls begins. Each trial that fails doubles the pause, up to 8,192 requests.

    A single poll does not show whether polling helps. A client on the same core cannot run during the poll,
    and the operating system needs some time to move the client to another core.

    Args:
        call_soon: method of the event loop; a scheduled callback keeps the loop awake until its next
            iteration.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._iterations_left = 0
        self._credit = CREDIT
        self._pause = MIN_PAUSE
        self._requests_to_skip = 0

    def served(self) -> None:
        """Start to poll for the next request, unless polling pauses. Call this after serving requests."""
        if self._requests_to_skip:
            self._requests_to_skip -= 1
            return
        if not self._iterations_left:
            self._call_soon(self._iterate)
        elif self._credit < MAX_CREDIT:
            self._credit += 1
        else:
            self._pause = MIN_PAUSE
        self._iterations_left = ITERATIONS

    def _iterate(self) -> None:
        self._iterations_left -= 1
        if self._iterations_left:
            self._call_soon(self._iterate)
        elif self._credit > 1:
            self._credit -= 2
        else:
            self._credit = CREDIT
            self._requests_to_skip = self._pause
            self._pause = min(2 * self._pause, MAX_PAUSE)
