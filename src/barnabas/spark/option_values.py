"""Parses option values. Every error has the option, the value and a hint in one line."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import ConfigError
from barnabas.base.settings_file import read_unchecked
from barnabas.base.text import without_userinfo
from barnabas.base.types import TopicPartition
from barnabas.client.errors import ClientError
from barnabas.client.properties import translate
from barnabas.spark.ranges import Offsets, from_json

if TYPE_CHECKING:
    import regex

log = logging.getLogger(__name__)

EARLIEST = -2
LATEST = -1

_SECRET = re.compile(r"pass|jaas|secret|token|\.(key|pem)$")

_SECONDS = {"ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


def invalid_option(name: str, value: object, hint: str) -> ConfigError:
    """Return a ConfigError for an invalid option. Its text has no secrets; `hint` says what is allowed."""
    shown = "[hidden]" if _SECRET.search(name) else without_userinfo(str(value))
    return ConfigError(f"option {name}={shown} is not allowed: {hint}")


def config_file(name: str, value: str) -> dict[str, str]:
    """Read the file at the path `value`. Return its connection settings under librdkafka's names.

    Other settings are ignored, with a warning. Raises ConfigError if the file cannot be read, or has a
    connection setting that cannot be honoured.
    """
    try:
        translated = translate(read_unchecked(Path(value)))
    except (ClientError, ConfigError) as error:
        raise invalid_option(name, value, str(error)) from None
    if translated.ignored:
        ignored = ", ".join(sorted(translated.ignored))
        log.warning("%s: ignored settings that do not concern connections: %s", value, ignored)
    return translated.settings


def assigned(name: str, value: str) -> tuple[TopicPartition, ...]:
    """Parse partitions from JSON, such as ``{"orders":[0,1]}``. Return them sorted, without duplicates.

    Raises ConfigError, with the option's `name`, if the value has another form or no partition.
    """
    hint = 'write the partitions of each topic as JSON: {"orders":[0,1]}'
    try:
        chosen = json.loads(value)
        partitions = {
            TopicPartition(topic, number) for topic, numbers in chosen.items() for number in numbers
        }
    except (ValueError, AttributeError, TypeError):
        raise invalid_option(name, value, hint) from None
    if not partitions or any(type(each.partition) is not int or each.partition < 0 for each in partitions):
        raise invalid_option(name, value, hint)
    return tuple(sorted(partitions))


def by_partition(name: str, value: str) -> Offsets:
    """Parse a number for each partition from JSON, such as ``{"orders":{"0":23}}``.

    As an offset, -2 is the start of a log and -1 its end. Raises ConfigError, with the option's `name`, if
    the value has another form, no partition, or a number below -2.
    """
    unit = "milliseconds" if name.endswith("ByTimestamp") else "offsets"
    hint = f'write the {unit} of each partition as JSON: {{"orders":{{"0":23,"1":7}}}}'
    try:
        parsed = from_json(json.loads(value))
    except (ValueError, AttributeError, TypeError):
        words = "earliest, latest, or " if unit == "offsets" else ""
        raise invalid_option(name, value, hint.replace("write ", f"write {words}", 1)) from None
    if not parsed or any(type(number) is not int or number < EARLIEST for number in parsed.values()):
        raise invalid_option(name, value, hint)
    return parsed


def boolean(name: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise invalid_option(name, value, "write true or false")
    return value.lower() == "true"


def positive(name: str, value: str) -> int:
    if not value.isdecimal() or int(value) == 0:
        raise invalid_option(name, value, "write a whole number above 0")
    return int(value)


def count(name: str, value: str) -> int:
    if not value.isdecimal():
        raise invalid_option(name, value, "write a whole number, 0 or above")
    return int(value)


def seconds(name: str, value: str) -> float:
    """Parse a time in Spark's form: 500ms, 30s, 15m, 1h, 1d. Return it in seconds.

    A number without a unit is in milliseconds. Raises ConfigError, with the option's `name`, for other texts.
    """
    parts = re.fullmatch(r"(\d+)\s*(ms|s|m|min|h|d)?", value.lower())
    if parts is None:
        raise invalid_option(name, value, "write a number and a unit, such as 500ms, 30s, 15m, 1h")
    return int(parts[1]) * _SECONDS[parts[2] or "ms"]


def delivery(name: str, value: str) -> bool:
    """Parse ``at-least-once`` or ``exactly-once``. Return True for ``exactly-once``.

    Raises ConfigError, with the option's `name`, for other texts.
    """
    if value.lower() not in ("at-least-once", "exactly-once"):
        raise invalid_option(name, value, "choose from at-least-once, exactly-once")
    return value.lower() == "exactly-once"


def sink_name(name: str, value: str) -> str:
    if not re.fullmatch(r"[\w.-]+", value):
        raise invalid_option(name, value, "write letters, digits, dots, hyphens and underscores only")
    return value


def timestamp(name: str, value: str) -> int:
    """Parse a time in milliseconds since 1970.

    As in ListOffsets, -2 means the log start and -1 the log end. Raises ConfigError, with the option's
    `name`, for other texts.
    """
    if not value.isdecimal() and value not in ("-1", "-2"):
        raise invalid_option(name, value, "write milliseconds since 1970, such as 1700000000000")
    return int(value)


def strategy(name: str, value: str) -> bool:
    """Parse ``error`` or ``latest``, for a start time after the last record. Return True for ``latest``.

    Raises ConfigError, with the option's `name`, for other texts.
    """
    if value.lower() not in ("error", "latest"):
        raise invalid_option(name, value, "choose from error, latest")
    return value.lower() == "latest"


def topic_pattern(name: str, value: str) -> regex.Pattern[str]:
    r"""Compile a regular expression in Java's syntax.

    That includes ``\p{Alpha}``, ``[a-z&&[^q]]`` and possessive quantifiers. Raises ConfigError, with the
    option's `name`, if `value` is empty or is not a regular expression.
    """
    import regex  # takes longer to load than all else here, and a task needs no pattern

    if not value:
        raise invalid_option(name, value, "write a regular expression, such as logs\\..*")
    try:
        return regex.compile(value, regex.VERSION1)
    except regex.error as error:
        raise invalid_option(name, value, f"it is not a regular expression: {error}") from None


def topic_name(name: str, value: str) -> str:
    if not value:
        raise invalid_option(
            name, value, "name a topic, or remove it and name one in each row's column topic"
        )
    return value
