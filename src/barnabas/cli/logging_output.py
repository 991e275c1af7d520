"""Writes the log to stderr, as text or JSON. It counts repeated lines instead of writing them."""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

#: seconds after the output of a line in which its repetitions are only counted
WINDOW = 10.0
#: maximum number of different lines that are remembered
_MAX_KNOWN = 1000

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


def log_to_stderr(level: str, form: str, broker: int | None = None) -> None:
    """Log to stderr from `level` on. `form` is "text" or "json", as in `barnabas start --log-format`.

    `broker` is added to each line if several brokers share stderr.
    """
    handler = CountingHandler()
    text = _TEXT if broker is None else f"broker {broker}: {_TEXT}"
    handler.setFormatter(JsonFormatter(broker) if form == "json" else logging.Formatter(text))
    logging.basicConfig(level=level.upper(), handlers=[handler])


class JsonFormatter(logging.Formatter):
    """Formats a line as an object with ``time`` (UTC), ``level``, ``logger``, ``message`` and ``exception``.

    If several brokers share stderr, it also has ``broker``.
    """

    def __init__(self, broker: int | None = None) -> None:
        super().__init__()
        self._broker = broker

    def format(self, record: logging.LogRecord) -> str:
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if self._broker is not None:
            entry["broker"] = self._broker
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)


class _Repeated:
    """A line that was written to the log: its record, and how often the line was repeated after that."""

    __slots__ = ("count", "record")

    def __init__(self, record: logging.LogRecord) -> None:
        self.record = record
        self.count = 0


class CountingHandler(logging.StreamHandler):  # type: ignore[type-arg]
    """Writes a line, and in the next `WINDOW` seconds (10) only counts equal lines. Then it writes the count.

    Lines are equal if they have the same logger, level and message.

    Without this limit, a failing disk, or a client in a loop, would fill the log with one line and hide all
    other lines.
    """

    def __init__(self) -> None:
        super().__init__(sys.stderr)
        #: recent lines by logger, level and message, in the order in which they were written
        self._known: dict[tuple[str, int, str], _Repeated] = {}

    def emit(self, record: logging.LogRecord) -> None:
        self._tell_due(record.created)
        key = (record.name, record.levelno, record.getMessage())
        known = self._known.get(key)
        if known is not None:
            known.count += 1
            return
        if len(self._known) >= _MAX_KNOWN:
            self._tell(next(iter(self._known)))
        self._known[key] = _Repeated(record)
        super().emit(record)

    def close(self) -> None:
        """Write how often each recent line was repeated, if that is not written yet. Close the handler."""
        for key in list(self._known):
            self._tell(key)
        super().close()

    def _tell_due(self, now: float) -> None:
        for key, known in list(self._known.items()):
            if abs(now - known.record.created) < WINDOW:
                break
            self._tell(key)

    def _tell(self, key: tuple[str, int, str]) -> None:
        known = self._known.pop(key)
        if known.count:
            name, level, message = key
            record = known.record
            again = f"{message} ({known.count} more like it within {WINDOW:g} s)"
            super().emit(logging.LogRecord(name, level, record.pathname, record.lineno, again, (), None))
