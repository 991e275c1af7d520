"""Finds the rows of a batch that a sink rejects: it tries smaller and smaller parts of the batch."""

from __future__ import annotations

from collections.abc import Callable


def find_rejected(
    count: int, attempt: Callable[[int, int], str | None], check: Callable[[int, str], None]
) -> dict[int, str]:
    """Return the reason for each rejected row among `count` rows, by the row's number from 0, in order.

    Parts are tried in the order of the rows. A rejected part is halved until one row is left. So each
    rejected row costs about 2 log2(`count`) attempts.

    Args:
        attempt: called with a start and an end. `attempt` tries to write the rows from the start up to, but
            without, the end. If the sink accepts all of them, `attempt` returns None. If the sink rejects a
            row, the sink accepts none of them, and `attempt` returns the reason.
        check: called after each rejected row, with the number of rejected rows so far and the last reason. It
            can raise an error to stop the search.
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
