"""Lines of a text file with a checksum that Apache Kafka's readers ignore.

Kafka's checkpoint files have no checksum, and a damaged digit is still a number. Kafka splits a line at
blanks and ignores blanks at its end. So each line ends in 32 blanks that encode the CRC-32C of the text
before them, the highest bit first. A tab is a 1, a space is a 0. Lines that Kafka wrote have no checksum.
A line may have a *tag* before its checksum in the same form: a number for which Kafka's format has no field.
"""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.kafka.records.crc import crc32c

_BITS = 32
_BLANKS = str.maketrans("01", " \t")
_DIGITS = str.maketrans(" \t", "01")


def encode(lines: Iterable[str]) -> bytes:
    """Return the content of a checkpoint file: version 0, the number of lines, and the checksummed lines."""
    checked = [encode_line(line) for line in lines]
    return b"".join([encode_head(len(checked)), *checked])


def encode_head(lines: int) -> bytes:
    """Return the first two lines of a checkpoint file: version 0, and the number of lines that follow."""
    return f"0\n{lines}\n".encode()


def encode_line(line: str) -> bytes:
    """Return `line` as bytes, with its checksum and a newline."""
    return f"{line}{_checksum(line)}\n".encode()


def tagged(line: str, tag: int) -> str:
    """Return `line` with a tag, a number of 32 bits, for `encode` or `encode_line`."""
    return line + _blanks(tag)


def tag_of(line: str) -> int | None:
    """Return the tag of a line that `decode` has returned; None if the line has no tag."""
    blanks = line[len(line.rstrip(" \t")) :]
    return int(blanks.translate(_DIGITS), 2) if len(blanks) == _BITS else None


def decode(content: bytes) -> tuple[list[str], str | None]:
    """Return the undamaged lines, and a description of the first damage; None if there is none.

    The lines have their tags, but no checksums. If the version or the number of lines cannot be read, the
    list is empty. In a file without checksums, such as Kafka's, every line counts as undamaged.
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
        text = line[:-_BITS]
        if line == text + _checksum(text):
            whole.append(text)
        elif not is_checked:
            whole.append(line)
        else:
            damage = damage or f"line {number} does not match its checksum"
    if damage is None and lines[1] != str(len(whole)):
        damage = f"it says {lines[1]!r} lines and has {len(whole)}"
    return whole, damage


def _checksum(line: str) -> str:
    return _blanks(crc32c(line.encode("ascii", "replace")))


#: a byte as blanks
_BYTES = [f"{byte:08b}".translate(_BLANKS) for byte in range(256)]


def _blanks(number: int) -> str:
    return (
        f"{_BYTES[number >> 24]}{_BYTES[number >> 16 & 255]}{_BYTES[number >> 8 & 255]}{_BYTES[number & 255]}"
    )
