"""Looks out for the next request for a moment before the event loop sleeps, as long as that pays.

To wake a core that has fallen asleep takes as long as to serve a small request, and a client that waits for
each answer sends its next request sooner than that. ADR 7 has what was measured.
"""

from __future__ import annotations

from collections.abc import Callable

#: How many turns of the event loop a look-out lasts: about 80 µs.
TURNS = 120
#: The trust that a trial begins with: a request that is met adds 1 to it, a look-out in vain takes 2.
TRUST = 64
#: What it grows to at most; the trial has succeeded then.
MOST_TRUST = 128
#: How many requests go by without a look-out once no trust is left, ...
SHORTEST_REST = 64
#: ... twice as many each time, up to this.
LONGEST_REST = 8192


class BusyPolling:
    """The look-outs of an event loop that has its process for itself: other threads want the interpreter.

    Where more than a third of the requests come later than a look-out lasts it soon rests, but for a trial of
    some 32 look-outs in 8,192 requests. A single one would tell nothing: the system has to move a client that
    shared the loop's core to another one first.

    Args:
        call_soon: the event loop's; what it is given keeps the loop from sleeping before its next turn.
    """

    def __init__(self, call_soon: Callable[[Callable[[], None]], object]) -> None:
        self._call_soon = call_soon
        self._turns = 0
        self._trust = TRUST
        self._rest = SHORTEST_REST
        self._to_skip = 0

    def served(self) -> None:
        """Requests have been served: the next may come at once."""
        if self._to_skip:
            self._to_skip -= 1
            return
        if not self._turns:
            self._call_soon(self._turn)
        elif self._trust < MOST_TRUST:
            self._trust += 1
        else:
            self._rest = SHORTEST_REST
        self._turns = TURNS

    def _turn(self) -> None:
        self._turns -= 1
        if self._turns:
            self._call_soon(self._turn)
        elif self._trust > 1:
            self._trust -= 2
        else:
            self._trust = TRUST
            self._to_skip = self._rest
            self._rest = min(2 * self._rest, LONGEST_REST)
