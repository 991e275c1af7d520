"""Limits the log lines about closed connections."""

from __future__ import annotations

from barnabas.base.text import shown


class CloseLog:
    """Limits log lines about closed connections to one in ten seconds for each host and reason.

    Without this limit, a health check, or a client that reconnects forever, would fill the log.
    """

    INTERVAL = 10.0
    MAX_KNOWN = 1000

    def __init__(self) -> None:
        #: by host and reason: time of the last log line, and number of omitted lines since
        self._known: dict[tuple[str, str], tuple[float, int]] = {}

    def line(self, host: str, reason: str, now: float) -> str | None:
        """Return the text to log when the broker closes a connection.

        Return None if a line for this host and reason was logged in the last `INTERVAL` seconds. The next
        text has the number of omitted lines.

        Args:
            host: the client's address.
            reason: why the broker closes the connection.
            now: time in seconds, of a clock that never goes back.
        """
        key = host, shown(reason)
        logged, more = self._known.get(key, (-self.INTERVAL, 0))
        if now - logged < self.INTERVAL:
            self._known[key] = logged, more + 1
            return None
        if len(self._known) >= self.MAX_KNOWN:
            self._known.clear()
        self._known[key] = now, 0
        return f"{key[1]} ({more} more like it since)" if more else key[1]
