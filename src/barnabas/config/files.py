"""Settings from a file: TOML, or the server.properties of Apache Kafka."""

from __future__ import annotations

import json
import logging
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.config.broker import BrokerConfig
from barnabas.config.kafka_only import unsupported_reason, without_kafka_only
from barnabas.config.listener_settings import ListenerSetting
from barnabas.config.properties import parse_properties
from barnabas.config.setting import shown
from barnabas.errors import ConfigError

log = logging.getLogger(__name__)

#: Kafka's own have 7 KB, most of them comments
_MAX_BYTES = 1 << 20

#: how many faults of a file are told; one that is not a file of settings has one in each line
_MAX_PROBLEMS = 3

#: also those that Kafka gives to classes it loads
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_CONTROL = re.compile(rb"[\x00-\x08\x0e-\x1f]")
#: tomllib takes a time that grows with the square of a key's dots
_LONG_LINE = re.compile(rb"[^\n]{16384}")
_FORM = "write NAME=VALUE as in Kafka's server.properties, or TOML in a file that ends in .toml"


class _Given(NamedTuple):
    """What a file sets a name to, and in which line; 0 where that is not known."""

    text: str
    line: int


def read_settings(path: Path) -> dict[str, str]:
    """What a file sets, as text by declared name: TOML if the file's name ends in ``.toml``, else properties.

    In TOML a setting is a key (``num.partitions = 3``), quoted where it would also be a table
    (``"max.connections" = 100``); its value is a string, a number, a boolean or an array of strings. What
    applies only to Apache Kafka itself is ignored in properties, with a line in the log.

    Raises:
        ConfigError: the file cannot be read, or sets what is unknown, unsupported or not allowed; it names
            file, line and cause of the first few faults.
    """
    text = _read_text(path)
    given = _read_toml(path, text) if path.suffix == ".toml" else _read_properties(path, text)
    return _check(path, given)


def read_unchecked(path: Path) -> dict[str, str]:
    """What a file sets, by the names in it: TOML or properties as in `read_settings`; the last value counts.

    Raises:
        ConfigError: the file cannot be read; it names file and line, and no value.
    """
    text = _read_text(path)
    if path.suffix == ".toml":
        return {name: item.text for name, item in _read_toml(path, text).items()}
    given = {}
    for line, name, value in parse_properties(text):
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{path}:{line}: this is not a setting; {_FORM}")
        given[name] = value
    return given


def dump_toml(settings: Mapping[str, str]) -> str:
    """Settings as `read_settings` reads them from a file that ends in ``.toml``."""
    # TOML's strings are JSON's, but for one character that JSON leaves as it is.
    pairs = (
        tuple(json.dumps(each, ensure_ascii=False).replace("\x7f", "\\u007f") for each in pair)
        for pair in settings.items()
    )
    return "".join(f"{name} = {value}\n" for name, value in pairs)


def _read_text(path: Path) -> str:
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


def _read_properties(path: Path, text: str) -> dict[str, _Given]:
    given: dict[str, _Given] = {}
    again: dict[str, int] = {}
    for line, key, value in parse_properties(text):
        if not _NAME.fullmatch(key):
            raise ConfigError(f"{path}:{line}: {shown(f'{key} {value}'.strip())} is not a setting; {_FORM}")
        if key in given:
            again[key] = line
        given[key] = _Given(value, line)
    try:
        kept, ignored = without_kafka_only({name: item.text for name, item in given.items()})
    except ConfigError as error:
        raise ConfigError(f"{path}:{given['process.roles'].line}: {error}") from None
    settings = {name: _Given(value, given[name].line) for name, value in kept.items()}
    _check(path, settings)
    for name, line in again.items():
        log.warning("%s:%d: %s is set again; the last value counts", path, line, name)
    if ignored:
        log.warning(
            "%s: ignored settings that apply only to Kafka itself: %s", path, ", ".join(sorted(ignored))
        )
    return settings


def _read_toml(path: Path, text: str) -> dict[str, _Given]:
    try:
        settings = dict(_flatten(tomllib.loads(text)))
    except tomllib.TOMLDecodeError as error:
        # Its text ends in "(at line 3, column 7)" or in "(at end of document)".
        found = re.search(r" \(at line (\d+), column \d+\)", str(error))
        where = f":{found[1]}" if found else ""
        cause = shown(str(error).partition(" (at ")[0])
        raise ConfigError(f"{path}{where}: {cause}; write TOML: NAME = VALUE") from None
    except RecursionError:
        raise ConfigError(f"{path} is not a file of settings: it is nested too deeply") from None
    except ValueError:  # a number of thousands of digits
        raise ConfigError(f"{path} has a number that is too long") from None
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    return {name: _Given(value, _line_of(name, text)) for name, value in settings.items()}


def _line_of(name: str, text: str) -> int:
    """The line of TOML that sets `name`; 0 where several may be it."""
    last = re.escape(name.rpartition(".")[2])
    found = list(re.finditer(rf"^[^#=\n]*\b{last}[\"']?[ \t]*=", text, re.MULTILINE))
    return text.count("\n", 0, found[0].start()) + 1 if len(found) == 1 else 0


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
            raise ConfigError(f"{shown(name)}: write a string, a number, true, false, or an array of strings")


def _check(path: Path, given: Mapping[str, _Given]) -> dict[str, str]:
    """The settings by their declared names."""
    texts: dict[str, str] = {}
    problems: list[str] = []
    unsupported: dict[str, list[str]] = {}  # the settings by the reason
    for name, (text, line) in given.items():
        if len(problems) > _MAX_PROBLEMS:
            break
        where = f"{path}:{line}: " if line else f"{path}: "
        is_ours = name in BrokerConfig.declared or ListenerSetting.parse(name) is not None
        reason = None if is_ours else unsupported_reason(name)
        if reason is not None:
            unsupported.setdefault(reason, []).append(f"{where}{shown(name)}")
            continue
        try:
            setting = BrokerConfig.find(name)
            setting.parse(text)
            if texts.setdefault(setting.name, text) != text:
                raise ConfigError(
                    f"{name}={shown(text)} contradicts {setting.name}={shown(texts[setting.name])}"
                )
        except ConfigError as error:
            problems.append(f"{where}{error}")
    found = list(problems)
    for reason, names in unsupported.items():
        more = f" (and {len(names) - 1} more)" if len(names) > 1 else ""
        found.append(f"{names[0]}{more} is not supported: {reason}")
    if found:
        raise ConfigError(
            "; ".join(found[:_MAX_PROBLEMS]) + ("; and more" if len(found) > _MAX_PROBLEMS else "")
        )
    return texts
