"""Finds the rows of a batch that a sink rejects, by trying parts of it."""

from __future__ import annotations

from collections.abc import Callable


def find_rejected(
    count: int, attempt: Callable[[int, int], str | None], check: Callable[[int, str], None]
) -> dict[int, str]:
    """Return the numbers of the rejected rows among `count`, in their order, each with its reason.

    Rows are tried in their order. A rejected row costs about as many attempts as halvings lead to it.

    Args:
        attempt: takes the rows from a number up to, but without, another one. Returns None when it has taken
            all of them, else the reason; then it has taken none.
        check: called with the number of rejected rows and the last reason; raises to stop.
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
