"""The input of `barnabas produce`, cut into records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, NamedTuple

from barnabas.cli.record_format import Outgoing, from_json
from barnabas.cli.streams import InputError

#: A JSON line may be this much longer than its record: an escape of a byte takes six, and there are names.
_JSON_FACTOR = 6
_JSON_NAMES = 1 << 16


class InputForm(NamedTuple):
    """How the input is read: as lines, unless one of these says otherwise."""

    as_json: bool = False
    raw: bool = False
    separator: bytes | None = None


def read_records(
    stream: IO[bytes], form: InputForm, longest: int, name: str
) -> Iterator[tuple[str, Outgoing]]:
    """Each record, with its position in the input as messages name it: "line 7".

    A line ends with LF or CRLF, which are not part of the record; the last one may end with the input.

    Args:
        longest: bytes that a record may have; no more than that is held in memory.
        name: of the stream, for messages.

    Raises:
        InputError: the stream cannot be read, a line is too long, or is not what `form` says.
    """
    if form.raw:
        data = _read(stream, longest + 1, name)
        if len(data) > longest:
            raise InputError(f"{name} has more than the {longest:,} bytes that one record may have")
        yield "the input", Outgoing(data)
        return
    longest_line = longest * _JSON_FACTOR + _JSON_NAMES if form.as_json else longest + 2
    number = 0
    while line := _read_line(stream, longest_line, name):
        number += 1
        place = f"line {number}"
        if line.endswith(b"\n"):
            text = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        elif len(line) < longest_line:
            text = line
        else:
            raise InputError(
                f"{place} is longer than {longest_line:,} bytes, and a record has {longest:,} at most"
            )
        if form.as_json:
            if text.strip():
                try:
                    yield place, from_json(text)
                except ValueError as error:
                    raise InputError(f"{place} is {error}") from None
        elif form.separator is not None and form.separator in text:
            key, _, value = text.partition(form.separator)
            yield place, Outgoing(value, key)
        else:
            yield place, Outgoing(text)


def _read(stream: IO[bytes], size: int, name: str) -> bytes:
    try:
        return stream.read(size)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from None


def _read_line(stream: IO[bytes], size: int, name: str) -> bytes:
    try:
        return stream.readline(size)
    except OSError as error:
        raise InputError(f"{name}: {error.strerror}") from None
