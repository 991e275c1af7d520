"""Joins lines into records: the lines of a stack trace belong to the line before them."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from barnabas.client.log_lines import has_header

#: The largest numbers of lines and of characters in a record. Further lines become another record, so nothing
#: is lost. With these limits the record's JSON stays below the default of max.message.bytes, even if JSON
#: escapes every character.
MAX_LINES = 1_000
MAX_CHARACTERS = 128 * 1024

_TRACEBACK = "Traceback (most recent call last)"
_TRACE_LINE = re.compile(
    r"Caused by: |Suppressed: |\.\.\. \d+ (?:more|common)|Traceback \(most recent call last\)"
)
_PYTHON_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(?::|$)")
_PYTHON_CHAIN = re.compile(r"During handling of the above exception|The above exception was the direct cause")

P = TypeVar("P")


@dataclass(slots=True)
class Gathered(Generic[P]):
    """The lines of one record, the position after the last of them, and the number of their characters."""

    end: P
    lines: list[str] = field(default_factory=list)
    size: int = 0

    @property
    def text(self) -> str:
        return "\n".join(self.lines).rstrip()


class LineGrouper(Generic[P]):
    """Groups lines into records. It receives one line at a time, with the position after the line.

    A line with a header (a timestamp, a level or another known form; see `has_header`) starts a new record. A
    line without a header:

    - belongs to the current record if that record began with a header;
    - belongs to the current record if the line is indented, blank, or part of a Java or Python stack trace;
    - starts a new record in all other cases.

    Any line starts a new record if the current one would exceed `MAX_LINES` lines or `MAX_CHARACTERS`
    characters.
    """

    def __init__(self) -> None:
        self._open: Gathered[P] | None = None
        self._headed = False
        self._in_python_trace = False

    @property
    def pending(self) -> bool:
        """Whether a record waits for more lines."""
        return self._open is not None

    def add(self, line: str, end: P) -> Gathered[P] | None:
        """Add a line; `end` is the position after it in the file.

        If the line begins a new record, return the finished record before it. Return None if the line belongs
        to the current record, or if it is the first line.
        """
        finished = None
        headed = has_header(line)
        full = self._open is not None and (
            len(self._open.lines) >= MAX_LINES or self._open.size + len(line) > MAX_CHARACTERS
        )
        if self._open is not None and (full or not self._continues(line, headed)):
            finished = self.flush()
        if self._open is None:
            self._open = Gathered(end)
            self._headed = headed
        if line.startswith(_TRACEBACK):
            self._in_python_trace = True
        elif self._in_python_trace and line and not line[0].isspace():
            self._in_python_trace = False  # the exception itself ends the trace
        self._open.lines.append(line)
        self._open.size += len(line) + 1
        self._open.end = end
        return finished

    def flush(self) -> Gathered[P] | None:
        """End the current record, and return it. Return None if no record is pending."""
        finished, self._open = self._open, None
        self._in_python_trace = False
        return finished

    def _continues(self, line: str, headed: bool) -> bool:
        if headed:
            return False
        if not line or line[0].isspace() or self._headed:
            return True
        if _TRACE_LINE.match(line):
            return not line.startswith(_TRACEBACK) or _PYTHON_CHAIN.match(self._last_words()) is not None
        if self._in_python_trace and _PYTHON_EXCEPTION.match(line):
            return True
        return _PYTHON_CHAIN.match(line) is not None

    def _last_words(self) -> str:
        lines = self._open.lines if self._open is not None else []
        return next((line for line in reversed(lines) if line), "")
