"""Finds the rows of a batch that a sink rejects: it tries smaller and smaller parts of the batch."""

from __future__ import annotations

from collections.abc import Callable


def find_rejected(
    count: int, attempt: Callable[[int, int], str | None], check: Callable[[int, str], None]
) -> dict[int, str]:
    """Return the numbers of the rejected rows among `count` rows, in order, each with its reason.

    Parts are tried in the order of the rows. A rejected part is halved until one row is left. So each
    rejected row costs about 2 log2(`count`) attempts.

    Args:
        attempt: called with a start and an end. It writes the rows from the start up to, but without, the
            end. It returns None if the sink accepted all, else the reason; then the sink accepted none.
        check: called after each rejected row with their number so far and the last reason. It can raise an
            error to stop.
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
