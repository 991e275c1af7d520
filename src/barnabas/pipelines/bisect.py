"""Finds the rows of a batch that a sink rejects: it tries smaller and smaller parts of the batch."""

from __future__ import annotations

from collections.abc import Callable


def find_rejected(
    count: int, attempt: Callable[[int, int], str | None], check: Callable[[int, str], None]
) -> dict[int, str]:
    """Return the numbers of the rejected rows among `count` rows, in order, each with its reason.

    The rows are tried in order. Each rejected row costs about as many attempts as there are halvings until it
    is alone.

    Args:
        attempt: tries the rows from a number up to, but without, another one. It returns None if all were
            accepted, else the reason; then none was accepted.
        check: called with the number of rejected rows and the last reason; it can raise to stop.
    """
    rejected: dict[int, str] = {}
    waiting = [(0, count)] if count else []
    while waiting:
        start, end = waiting.pop()
        reason = attempt(start, end)
        if reason is None:
            continue
        if end - start == 1:
            rejected[start] = reason
            check(len(rejected), reason)
        else:
            middle = (start + end) // 2
            waiting += [(middle, end), (start, middle)]
    return rejected
