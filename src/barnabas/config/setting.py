"""How a setting is declared: once, as a typed attribute of a `Settings` class.

    class TopicConfig(Settings):
        retention_ms: int = setting(Type.LONG, 604_800_000, minimum=-1, doc="How long ...")

declares ``retention.ms``: the attribute's name with dots. The declaration is what parses and checks a value,
what DescribeConfigs answers and what docs/configuration.md is made from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, ClassVar, Self

from barnabas.errors import ConfigError

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1


class Type(IntEnum):
    """The types of the protocol's DescribeConfigs (KIP-569), by their numbers there."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class Update(Enum):
    """When a change takes effect, and how far it reaches (KIP-226)."""

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
    """One declared setting; `name` is set by the class that holds it."""

    type: Type
    default: Any
    doc: str
    minimum: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()
    update: Update = Update.READ_ONLY
    sensitive: bool = False
    #: names that stand in for this one, best first: other spellings, coarser units, the broker's default
    synonyms: tuple[str, ...] = ()
    name: str = ""

    def parse(self, text: str) -> Any:
        """The value that `text` spells.

        Raises:
            ConfigError: the text is not of the type, or the value out of bounds.
        """
        value = self._parse_type(text.strip())
        self.check(value)
        return value

    def check(self, value: Any) -> None:
        """Raises ConfigError when a value of the right type is not allowed."""
        if value is None:
            return
        if self.choices:
            items = value if self.type is Type.LIST else (value,)
            for item in items:
                if item not in self.choices:
                    raise self.refuse(value, f"choose from {', '.join(self.choices)}")
        if self.type in _INTEGER_LIMITS or self.type is Type.DOUBLE:
            if self.minimum is not None and value < self.minimum:
                raise self.refuse(value, f"it must be at least {self.minimum}")
            if self.maximum is not None and value > self.maximum:
                raise self.refuse(value, f"it must be at most {self.maximum}")

    def render(self, value: Any) -> str | None:
        """How Kafka's tools would print `value`; `parse` reads it back."""
        if value is None:
            return None
        if self.type is Type.BOOLEAN:
            return "true" if value else "false"
        if self.type is Type.LIST:
            return ",".join(value)
        return str(value)

    def refuse(self, value: object, cure: str) -> ConfigError:
        """The error for a value that is not allowed."""
        shown = ",".join(value) if isinstance(value, tuple) else value
        return ConfigError(f"{self.name}={shown} is not allowed: {cure}")

    def _parse_type(self, text: str) -> Any:
        if self.type is Type.STRING:
            return text
        if self.type is Type.LIST:
            return tuple(item.strip() for item in text.split(",")) if text else ()
        if self.type is Type.BOOLEAN:
            lowered = text.lower()
            if lowered not in ("true", "false"):
                raise self.refuse(text, "write true or false")
            return lowered == "true"
        if self.type is Type.DOUBLE:
            try:
                return float(text)
            except ValueError:
                raise self.refuse(text, "write a number") from None
        try:
            value = int(text)
        except ValueError:
            raise self.refuse(text, "write a whole number") from None
        low, high = _INTEGER_LIMITS[self.type]
        if not low <= value <= high:
            raise self.refuse(text, f"it must lie between {low} and {high}")
        return value


def setting(
    type: Type,
    default: Any,
    *,
    doc: str,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
    update: Update = Update.READ_ONLY,
    sensitive: bool = False,
    synonyms: tuple[str, ...] = (),
) -> Any:
    """Declare a setting in the body of a `Settings` class (typed Any so that the annotation rules)."""
    return Setting(type, default, doc, minimum, maximum, choices, update, sensitive, synonyms)


class Settings:
    """A checked, immutable set of values: one attribute for each declared setting.

    Built from text (`from_text`) or from typed values by attribute name (the constructor).
    """

    #: by Kafka's name, in the order of declaration
    declared: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.declared = dict(cls.declared)
        for attribute, value in list(vars(cls).items()):
            if isinstance(value, Setting):
                name = attribute.replace("_", ".")
                object.__setattr__(value, "name", name)
                cls.declared[name] = value

    def __init__(self, **values: Any) -> None:
        for name, declaration in self.declared.items():
            attribute = name.replace(".", "_")
            if attribute in values:
                value = values.pop(attribute)
                declaration.check(value)
            else:
                value = declaration.default
            self.__dict__[attribute] = value
        if values:
            raise ConfigError(f"unknown settings: {', '.join(sorted(values))}")

    @classmethod
    def find(cls, name: str) -> Setting:
        """The declaration of `name`.

        Raises:
            ConfigError: no such setting is declared.
        """
        try:
            return cls.declared[name]
        except KeyError:
            raise ConfigError(f"{name} is not a setting that Barnabas knows") from None

    @classmethod
    def from_text(cls, text: Mapping[str, str]) -> Self:
        """Values from their spelling, by Kafka's names.

        Raises:
            ConfigError: a name is unknown or a value not allowed.
        """
        return cls(**{name.replace(".", "_"): cls.find(name).parse(value) for name, value in text.items()})

    def value(self, name: str) -> Any:
        """The value of the setting called `name` (with dots)."""
        return self.__dict__[name.replace(".", "_")]

    def replace(self, **values: Any) -> Self:
        """A copy with some values changed, by attribute name."""
        return type(self)(**{**self.__dict__, **values})

    def items(self) -> Iterator[tuple[Setting, Any]]:
        """Every declaration with its value here."""
        for name, declaration in self.declared.items():
            yield declaration, self.value(name)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and other.__dict__ == self.__dict__

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        changed = {d.name: value for d, value in self.items() if value != d.default}
        return f"{type(self).__name__}({changed})"
