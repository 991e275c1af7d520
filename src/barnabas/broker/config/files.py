"""Reads settings from a file: TOML, or a server.properties of Apache Kafka."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path

from barnabas.base.errors import ConfigError
from barnabas.base.properties import parse_properties
from barnabas.base.settings_file import SETTING_FORM, SETTING_NAME, Given, read_text, read_toml
from barnabas.base.text import quoted
from barnabas.broker.config.broker import BrokerConfig
from barnabas.broker.config.kafka_only import unsupported_reason, without_kafka_only
from barnabas.broker.config.listener_settings import ListenerSetting

log = logging.getLogger(__name__)

#: the most errors that a message reports: a file that has no settings has an error in each line
_MAX_PROBLEMS = 3


def read_settings(path: Path) -> dict[str, str]:
    """Read the settings in a file, as text by declared name.

    A file whose name ends in ``.toml`` is TOML. Every other file has Java properties.

    In TOML a setting is a key (``num.partitions = 3``). The key must be quoted if it is also the name of a
    table (``"max.connections" = 100``). The value is a string, a number, a boolean or an array of strings. In
    properties, settings that only Apache Kafka needs are ignored, with a warning in the log.

    Raises:
        ConfigError: the file cannot be read, or a setting in it is unknown, unsupported or invalid. The text
            has the file, the lines and the causes of the first few errors.
    """
    text = read_text(path)
    given = read_toml(path, text) if path.suffix == ".toml" else _read_properties(path, text)
    return _check(path, given)


def _read_properties(path: Path, text: str) -> dict[str, Given]:
    given: dict[str, Given] = {}
    again: dict[str, int] = {}
    for line, key, value in parse_properties(text):
        if not SETTING_NAME.fullmatch(key):
            raise ConfigError(
                f"{path}:{line}: {quoted(f'{key} {value}'.strip())} is not a setting; {SETTING_FORM}"
            )
        if key in given:
            again[key] = line
        given[key] = Given(value, line)
    try:
        kept, ignored = without_kafka_only({name: item.text for name, item in given.items()})
    except ConfigError as error:
        raise ConfigError(f"{path}:{given['process.roles'].line}: {error}") from None
    settings = {name: Given(value, given[name].line) for name, value in kept.items()}
    _check(path, settings)
    for name, line in again.items():
        log.warning("%s:%d: %s is set again; the last value counts", path, line, name)
    if ignored:
        log.warning(
            "%s: ignored settings that apply only to Kafka itself: %s", path, ", ".join(sorted(ignored))
        )
    return settings


def _check(path: Path, given: Mapping[str, Given]) -> dict[str, str]:
    """Check the settings in the file `path`. Return their texts by declared name.

    Args:
        path: the file, for error messages.
        given: the text and the line of each setting, by its name in the file.

    Raises:
        ConfigError: a setting is unknown, unsupported or invalid, or contradicts another one.
    """
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
            unsupported.setdefault(reason, []).append(f"{where}{quoted(name)}")
            continue
        try:
            setting = BrokerConfig.find(name)
            setting.parse(text)
            if texts.setdefault(setting.name, text) != text:
                raise ConfigError(
                    f"{name}={quoted(text)} contradicts {setting.name}={quoted(texts[setting.name])}"
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
