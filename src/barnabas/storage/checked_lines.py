"""Lines of a text file that carry a checksum which Apache Kafka's readers do not see.

Kafka's checkpoint files have none, and a digit that was changed is still a number. Kafka splits a line at
blanks and drops those at its end, so each line ends in 32 of them: a tab for each bit that is set of the
CRC-32C of what is before, a space for the others, the highest bit first. A line without is Kafka's own.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.records.crc import crc32c

_BITS = 32
_BLANKS = str.maketrans("01", " \t")


def encode(lines: Iterable[str]) -> bytes:
    """A file of Kafka's form: version 0, the number of lines, and the lines with their checksums."""
    checked = [line + _checksum(line) for line in lines]
    return "\n".join(["0", str(len(checked)), *checked, ""]).encode()


def decode(content: bytes) -> tuple[list[str], str | None]:
    """The lines that are whole, and what is wrong with the others or the file; None when nothing is.

    Without a whole beginning nothing of the file counts.
    """
    try:
        lines = content.decode("ascii").split("\n")
        if lines.pop() or len(lines) < 2 or lines[0] != "0" or not lines[1].isdecimal():
            return [], "not a checkpoint of version 0"
    except UnicodeDecodeError:
        lines = content.decode("ascii", "replace").split("\n")
        if lines.pop() or len(lines) < 2 or lines[0] != "0":
            return [], "not a checkpoint of version 0"
    whole = []
    damage = None
    is_checked = any(line.endswith((" ", "\t")) for line in lines[2:])
    for number, line in enumerate(lines[2:], 3):
        text = line.rstrip(" \t")
        if line == text + _checksum(text) or (line == text and not is_checked):
            whole.append(text)
        else:
            damage = damage or f"line {number} does not match its checksum"
    if damage is None and lines[1] != str(len(whole)):
        damage = f"it says {lines[1]!r} lines and has {len(whole)}"
    return whole, damage


def _checksum(line: str) -> str:
    return f"{crc32c(line.encode('ascii', 'replace')):032b}".translate(_BLANKS)
