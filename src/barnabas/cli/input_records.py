"""The input of `barnabas produce`, cut into records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, NamedTuple

from barnabas.cli.record_format import Outgoing, from_json
from barnabas.cli.streams import InputError
from barnabas.client.schemas.unfit import UnfitError

if TYPE_CHECKING:
    from barnabas.client.schemas.codec import Encoder

#: A JSON line may be this much longer than its record: an escape of a byte takes six, and there are names.
_JSON_FACTOR = 6
_JSON_NAMES = 1 << 16


class InputForm(NamedTuple):
    """The format of the input. By default, each line is the value of a record.

    Attributes:
        as_json: whether each line is a record in JSON.
        raw: whether the whole input is one value.
        separator: the bytes between key and value in a line; None if lines have no keys.
        null: the bytes of a value that is sent as null; None if there are no such values.
        value: if not None, values are JSON, and this encoder turns them into bytes of a registered schema.
        key: if not None, keys are JSON, and this encoder turns them into bytes of a registered schema.
    """

    as_json: bool = False
    raw: bool = False
    separator: bytes | None = None
    null: bytes | None = None
    value: Encoder | None = None
    key: Encoder | None = None


def read_records(
    stream: IO[bytes], form: InputForm, longest: int, name: str
) -> Iterator[tuple[str, Outgoing]]:
    """Yield pairs: the place of a record for messages, such as "line 7", and the record.

    A line ends with LF or CRLF, which is not part of the record. The last line needs no line end. If
    `form.as_json` is true, blank lines are skipped.

    Args:
        longest: maximum size of a record in bytes. It also limits the size of the lines, and so the memory.
        name: name of the stream, for messages.

    Raises:
        InputError: the stream cannot be read, a line is too long, or does not have the format `form`.
    """
    is_json = form.as_json or form.value is not None or form.key is not None
    longest_text = longest * _JSON_FACTOR + _JSON_NAMES if is_json else longest
    if form.raw:
        data = _read(stream, longest_text + 1, name)
        if len(data) > longest_text:
            raise InputError(f"{name} has more than the {longest_text:,} bytes that one record may have")
        yield "the input", _outgoing("the input", form, data)
        return
    longest_line = longest_text + (0 if form.as_json else 2)
    number = 0
    while line := _read_line(stream, longest_line, name):
        number += 1
        source = f"line {number}"
        if line.endswith(b"\n"):
            text = line[:-2] if line.endswith(b"\r\n") else line[:-1]
        elif len(line) < longest_line:
            text = line
        else:
            raise InputError(
                f"{source} is longer than {longest_line:,} bytes, and a record has {longest:,} at most"
            )
        if form.as_json:
            if text.strip():
                yield source, _parsed(source, form, text)
        elif form.separator is not None and form.separator in text:
            key, _, value = text.partition(form.separator)
            yield source, _outgoing(source, form, value, key)
        else:
            yield source, _outgoing(source, form, text)


def _parsed(source: str, form: InputForm, line: bytes) -> Outgoing:
    try:
        return from_json(
            line,
            None if form.value is None else form.value.encode,
            None if form.key is None else form.key.encode,
        )
    except ValueError as error:
        raise InputError(f"{source} is {error}") from None
    except UnfitError as error:
        raise InputError(f"{source}: {error}") from None


def _outgoing(source: str, form: InputForm, value: bytes, key: bytes | None = None) -> Outgoing:
    try:
        return Outgoing(
            None if value == form.null else form.value.encode_text(value) if form.value else value,
            form.key.encode_text(key) if form.key and key is not None else key,
        )
    except UnfitError as error:
        raise InputError(f"{source}: {error}") from None


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
