"""Java's properties format, in which Kafka's server.properties is written.

The rules are those of ``java.util.Properties.load``: ``key=value``, ``key: value`` or ``key value``. ``#`` or
``!`` starts a comment, a backslash at the end continues a line, and backslashes escape characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_LINE_END = re.compile(r"\r\n|\r|\n")
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\$")
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*(?:[=:]\s*)?(.*)", re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """One setting of a file, and the line it begins on."""

    line: int
    key: str
    value: str


def parse_properties(text: str) -> Iterator[Property]:
    """Yield every property in the order of the file. A key that occurs several times comes each time."""
    lines = iter(enumerate(_LINE_END.split(text), 1))
    for number, raw in lines:
        line = raw.lstrip()
        if not line or line[0] in "#!":
            continue
        while _CONTINUED.search(line):
            _, more = next(lines, (0, ""))
            line = line[:-1] + more.lstrip()
        match = _KEY.fullmatch(line)
        assert match is not None
        yield Property(number, _unescape(match[1]), _unescape(match[2]))


def _unescape(text: str) -> str:
    found = _ESCAPE.sub(lambda m: chr(int(m[1], 16)) if m[1] else _LETTERS.get(m[2], m[2]), text)
    # Java escapes a character beyond 16 bits as two; half of one is no character
    return found.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
