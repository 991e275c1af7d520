"""Declares settings. Each setting is one typed attribute of a `Settings` class, for example:

    class LampConfig(Settings):
        lamp_dim_ms: int = setting("lamp.dim.ms", Type.LONG, 60_000, minimum=-1, doc="The time ...")

This line declares ``lamp.dim.ms``, which is the attribute's name with dots. The declaration parses and checks
values. DescribeConfigs and docs/reference/configuration.md use it.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.text import quoted

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = sys.float_info.max


_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_MAX_NUMBER_LENGTH = 100


class Type(IntEnum):
    """The types of settings in DescribeConfigs (KIP-569), by their numbers."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    PASSWORD = 9


class Update(Enum):
    """The scope of a setting's changes in a running cluster: none, one broker, or all brokers (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


_INTEGER_LIMITS = {
    Type.INT: (-(2**31), INT_MAX),
    Type.SHORT: (-(2**15), 2**15 - 1),
    Type.LONG: (-(2**63), LONG_MAX),
}


@dataclass(frozen=True, slots=True)
class Setting:
    """A declared setting: its name, type, default, description and limits."""

    name: str
    type: Type
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] | tuple[int, ...] = ()
    update: Update = Update.READ_ONLY
    sensitive: bool = False
    #: names that stand in for this one, best first: other spellings, coarser units, the broker's default
    synonyms: tuple[str, ...] = ()
    #: the regular expression that a text, or each item of a list, matches, and a hint for one that does not
    items: tuple[str, str] | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """The names that can set this setting: its own name first, then its synonyms."""
        return tuple(dict.fromkeys((self.name, *self.synonyms)))

    def parse(self, text: str) -> Any:
        """Parse a value from text, without the spaces around it.

        Raises:
            ConfigError: the text does not fit the type, or the value is not allowed (`check`).
        """
        value = self._parse_type(text.strip())
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raise ConfigError if a value of the right type is not allowed. None is always allowed."""
        if value is None:
            return
        if self.choices:
            items = value if self.type is Type.LIST else (value,)
            for item in items:
                if item not in self.choices:
                    raise self.invalid_value(value, f"choose from {', '.join(map(str, self.choices))}")
        if self.items is not None and not all(
            re.fullmatch(self.items[0], item) for item in (value if self.type is Type.LIST else (value,))
        ):
            raise self.invalid_value(value, self.items[1])
        if self.type in _INTEGER_LIMITS or self.type is Type.DOUBLE:
            if self.minimum is not None and value < self.minimum:
                raise self.invalid_value(value, f"it must be at least {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise self.invalid_value(value, f"it must be at most {self.maximum}")

    def render(self, value: Any) -> str | None:
        """Format `value` in the same way as Kafka's tools, so that `parse` can read it. None stays None."""
        if value is None:
            return None
        if self.type is Type.BOOLEAN:
            return "true" if value else "false"
        if self.type is Type.LIST:
            return ",".join(value)
        if self.type is Type.DOUBLE:
            return str(value).replace("e+", "E")
        return str(value)

    def invalid_value(self, value: object, hint: str) -> ConfigError:
        """Return the error for a `value` that is not allowed. `hint` says how to correct it."""
        text = ",".join(value) if isinstance(value, tuple) else "[hidden]" if self.sensitive else str(value)
        return ConfigError(f"{self.name}={quoted(text)} is not allowed: {hint}")

    def _parse_type(self, text: str) -> Any:
        if self.type in (Type.STRING, Type.PASSWORD):
            return text
        if self.type is Type.LIST:
            return tuple(dict.fromkeys(item.strip() for item in text.split(","))) if text else ()
        if self.type is Type.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise self.invalid_value(text, "write true or false")
            return lowered == "true"
        if self.type is Type.DOUBLE:
            try:
                number = float(text)
            except ValueError:
                number = math.nan
            if not math.isfinite(number):
                raise self.invalid_value(text, "write a number")
            return number
        if not _WHOLE_NUMBER.fullmatch(text):  # int() would also take 1_000 and the digits of other scripts
            raise self.invalid_value(text, "write a whole number")
        value = int(text) if len(text) <= _MAX_NUMBER_LENGTH else sys.maxsize + 1
        low, high = _INTEGER_LIMITS[self.type]
        if not low <= value <= high:
            raise self.invalid_value(text, f"it must lie between {low} and {high}")
        return value


def _declared_by(type: Type) -> Callable[..., Any]:
    """Return a function that declares a setting of the given type, as the value of a class attribute.

    The function's arguments are Kafka's name of the setting, the default and, by keyword, other fields of
    `Setting`. The attribute's name is Kafka's name with `_` for each `.`. The result has the type Any,
    because the attribute's annotation is the type of the setting's value.
    """
    return lambda name, default, **options: Setting(name, type, default, **options)


boolean = _declared_by(Type.BOOLEAN)
string = _declared_by(Type.STRING)
integer = _declared_by(Type.INT)
short = _declared_by(Type.SHORT)
long = _declared_by(Type.LONG)
double = _declared_by(Type.DOUBLE)
text_list = _declared_by(Type.LIST)


def password(name: str, **options: Any) -> Any:
    """Declare a secret setting, which has no default and is never shown.

    `options` are other fields of `Setting`.
    """
    return Setting(name, Type.PASSWORD, None, sensitive=True, **options)
