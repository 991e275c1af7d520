"""Settings from a file: TOML, or the server.properties of Apache Kafka."""

from __future__ import annotations

import logging
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from barnabas.config.broker import BrokerConfig
from barnabas.config.kafka_only import without_kafka_only
from barnabas.config.properties import parse_properties
from barnabas.errors import ConfigError

log = logging.getLogger(__name__)


def read_settings(path: Path) -> dict[str, str]:
    """What a file sets, as text by name; a name that ends in ``.toml`` is TOML, any other properties.

    In TOML a setting is a key (``num.partitions = 3``), quoted where it would also be a table
    (``"max.connections" = 100``); its value is a string, a number, a boolean or an array of strings. What
    Apache Kafka has and Barnabas has no use for is passed over in properties, with a line in the log.

    Raises:
        ConfigError: the file cannot be read, or sets what is unknown or not allowed; it names all of them.
    """
    try:
        if path.suffix == ".toml":
            texts = dict(_flatten(tomllib.loads(path.read_text("utf-8"))))
        else:
            texts = _read_properties(path)
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from error
    _check(path, texts)
    return texts


def _read_properties(path: Path) -> dict[str, str]:
    texts: dict[str, str] = {}
    for line, key, value in parse_properties(path.read_text("utf-8")):
        if key in texts:
            log.warning("%s sets %s again in line %d: the last counts", path, key, line)
        texts[key] = value
    kept, passed = without_kafka_only(texts)
    if passed:
        log.warning("%s sets what Barnabas has no use for, passed over: %s", path, ", ".join(sorted(passed)))
    return kept


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
            raise ConfigError(f"{name}: write a string, a number, true, false, or an array of strings")


def _check(path: Path, texts: Mapping[str, str]) -> None:
    problems = []
    for name, text in texts.items():
        try:
            BrokerConfig.find(name).parse(text)
        except ConfigError as error:
            problems.append(str(error))
    if problems:
        raise ConfigError(f"{path}: {'; '.join(problems)}")
