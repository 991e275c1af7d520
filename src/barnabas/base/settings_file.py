"""Reads files of settings: TOML, or properties as in Apache Kafka. The caller checks the names."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.properties import parse_properties
from barnabas.base.text import quoted

#: Kafka's own have 7 KB, most of them comments
_MAX_BYTES = 1 << 20

#: also those that Kafka gives to classes it loads
SETTING_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
#: tomllib takes a time that grows with the square of a key's dots
_LONG_LINE = re.compile(rb"[^\n]{16384}")
SETTING_FORM = "write NAME=VALUE as in Kafka's server.properties, or TOML in a file that ends in .toml"


class Given(NamedTuple):
    """The value of a setting in a file, as text, and its line number; 0 if the line is not known."""

    text: str
    line: int


def read_unchecked(path: Path) -> dict[str, str]:
    """Return the settings in a file as text by name, unchecked.

    A file whose name ends in ``.toml`` is TOML; any other file has the format of Java's properties. If a
    properties file has a name several times, the last value counts.

    Raises:
        ConfigError: the file cannot be read, or a line is not a setting. The message has the file and, if it
            is known, the line, but no value.
    """
    text = read_text(path)
    if path.suffix == ".toml":
        return {name: item.text for name, item in read_toml(path, text).items()}
    given = {}
    for line, name, value in parse_properties(text):
        if not SETTING_NAME.fullmatch(name):
            raise ConfigError(f"{path}:{line}: this is not a setting; {SETTING_FORM}")
        given[name] = value
    return given


def dump_toml(settings: Mapping[str, str]) -> str:
    """Return settings as TOML, which `read_unchecked` can read."""
    # TOML's strings are JSON's, but for one character that JSON leaves as it is.
    pairs = (
        tuple(json.dumps(each, ensure_ascii=False).replace("\x7f", "\\u007f") for each in pair)
        for pair in settings.items()
    )
    return "".join(f"{name} = {value}\n" for name, value in pairs)


def read_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > _MAX_BYTES:
        raise ConfigError(f"{path} is not a file of settings: it has more than {_MAX_BYTES} bytes")
    if found := _CONTROL.search(data):
        line = data.count(b"\n", 0, found.start()) + 1
        raise ConfigError(f"{path}:{line}: not text: it has the control character 0x{found[0].hex()}")
    if found := _LONG_LINE.search(data):
        line = data.count(b"\n", 0, found.start()) + 1
        raise ConfigError(f"{path}:{line}: not a file of settings: the line is too long")
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        byte = data[error.start]
        raise ConfigError(f"{path}:{line}: byte 0x{byte:02x} is not UTF-8; save the file as UTF-8") from None


def read_toml(path: Path, text: str) -> dict[str, Given]:
    try:
        settings = as_texts(tomllib.loads(text))
    except tomllib.TOMLDecodeError as error:
        # Its text ends in "(at line 3, column 7)" or in "(at end of document)".
        found = re.search(r" \(at line (\d+), column \d+\)", str(error))
        where = f":{found[1]}" if found else ""
        cause = quoted(str(error).partition(" (at ")[0])
        raise ConfigError(f"{path}{where}: {cause}; write TOML: NAME = VALUE") from None
    except RecursionError:
        raise ConfigError(f"{path} is not a file of settings: it is nested too deeply") from None
    except ValueError:  # a number of thousands of digits
        raise ConfigError(f"{path} has a number that is too long") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: Given(value, _line_of(name, text)) for name, value in settings.items()}


def _line_of(name: str, text: str) -> int:
    """Return the line of TOML that sets `name`; 0 if several lines may set it."""
    last = re.escape(name.rpartition(".")[2])
    found = list(re.finditer(rf"^[^#=\n]*\b{last}[\"']?[ \t]*=", text, re.MULTILINE))
    return text.count("\n", 0, found[0].start()) + 1 if len(found) == 1 else 0


def as_texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return settings as text by name.

    A value is a string, a number, a bool or a list of strings. It can also be a dict of settings: their names
    then begin with the name of the dict.

    Raises:
        ConfigError: a value has another type.
    """
    return dict(_flatten(settings))


def _flatten(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for key, value in table.items():
        name = prefix + key
        if isinstance(value, dict):
            yield from _flatten(value, name + ".")
        elif isinstance(value, bool):
            yield name, "true" if value else "false"
        elif isinstance(value, list) and all(isinstance(item, str) for item in value):
            yield name, ",".join(value)
        elif isinstance(value, str | int | float):
            yield name, str(value)
        else:
            raise ConfigError(
                f"{quoted(name)}: write a string, a number, true, false, or an array of strings"
            )
