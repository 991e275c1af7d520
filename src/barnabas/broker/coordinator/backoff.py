"""Pauses between a coordinator's retries, and warnings that are not repeated too often.

While a disk is full or a log directory is offline, an operation fails at once. Retries without a pause would
keep the event loop busy and fill the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Hashable

FIRST_MS = 100
MAX_MS = 5_000

#: the seconds in which a warning of one kind is not repeated
_QUIET_S = 60.0


def backoff_ms(failures: int) -> int:
    """Return the pause after this many consecutive failures, in ms.

    The pause doubles from `FIRST_MS` up to `MAX_MS`.
    """
    return min(FIRST_MS << min(max(failures, 1) - 1, 16), MAX_MS)


class LimitedWarnings:
    """Logs at most one warning of each kind in a minute.

    If it has dropped warnings of a kind, the next warning of this kind has their number. The object keeps
    every kind forever, so callers must use few different kinds.
    """

    def __init__(self, logger: logging.Logger) -> None:
        self._logger = logger
        #: by kind: until when it is not logged again, and how many were left out since
        self._quiet: dict[Hashable, tuple[float, int]] = {}

    def warn(self, kind: Hashable, message: str, *args: object) -> None:
        """Log a warning, unless one of its kind was logged within the last minute."""
        now = asyncio.get_running_loop().time()
        until, left_out = self._quiet.get(kind, (now, 0))
        if now < until:
            self._quiet[kind] = (until, left_out + 1)
            return
        self._quiet[kind] = (now + _QUIET_S, 0)
        if left_out:
            message, args = f"{message} (and %d more of the same kind)", (*args, left_out)
        self._logger.warning(message, *args)
