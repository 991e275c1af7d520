"""A whole set of values: checked, typed, immutable."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar, Self

from barnabas.base.errors import ConfigError
from barnabas.base.text import quoted
from barnabas.broker.config.layers import Layer, Source, entries, read
from barnabas.broker.config.setting import Setting


class Settings:
    """One attribute for each declared setting.

    Built from text (`from_text`, `from_layers`) or from typed values by attribute name (the constructor).
    """

    #: by Kafka's name, in the order of declaration
    declared: ClassVar[dict[str, Setting]] = {}
    #: other spellings that may be given in place of a declared name
    spellings: ClassVar[Mapping[str, str]] = {}

    #: what was set and not left at its default, as text by the name it was set by
    given: Mapping[str, str]
    #: where the values come from, the first that sets one winning
    layers: Sequence[Layer]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.declared = dict(cls.declared)
        for attribute, value in list(vars(cls).items()):
            if isinstance(value, Setting):
                assert value.name == attribute.replace("_", "."), f"{attribute} declares {value.name}"
                cls.declared[value.name] = value

    def __init__(self, **values: Any) -> None:
        unknown = [name for name in values if name.replace("_", ".") not in self.declared]
        if unknown:
            raise ConfigError(f"unknown settings: {', '.join(sorted(unknown))}")
        given = {}
        for attribute, value in values.items():
            setting = self.declared[attribute.replace("_", ".")]
            setting.check(value)
            text = setting.render(value)
            if text is not None:
                given[setting.name] = text
        self._fill(self._layers(given), given)

    @classmethod
    def find(cls, name: str) -> Setting:
        """The declaration of `name`.

        Raises:
            ConfigError: no such setting is declared.
        """
        try:
            return cls.declared[cls.spellings.get(name, name)]
        except KeyError:
            raise ConfigError(cls._explain_unknown(name)) from None

    @classmethod
    def from_text(cls, text: Mapping[str, str]) -> Self:
        """Values from their spelling, by Kafka's names.

        Raises:
            ConfigError: a name is unknown or a value not allowed.
        """
        given = {}
        for name, value in text.items():
            setting = cls.find(name)
            setting.parse(value)
            given[setting.name] = value
        return cls.from_layers(cls._layers(given), given)

    @classmethod
    def from_layers(cls, layers: Sequence[Layer], given: Mapping[str, str]) -> Self:
        """Return values from `layers`, the first of which wins; `Settings.given` will return `given`.

        Raises:
            ConfigError: a value is not allowed.
        """
        self = cls.__new__(cls)
        self._fill(layers, given)
        return self

    @classmethod
    def default_layer(cls) -> Layer:
        """Every default that is not None, as text."""
        texts = ((setting.name, setting.render(setting.default)) for setting in cls.declared.values())
        return Layer(Source.DEFAULT_CONFIG, {name: text for name, text in texts if text is not None})

    @classmethod
    def _explain_unknown(cls, name: str) -> str:
        """Say in one line that `name` is not declared, and what to do about it."""
        import difflib  # wanted only when something is wrong

        # A long name cannot be a misspelt one, and comparing it would take long.
        close = difflib.get_close_matches(name, cls.declared, 1, cutoff=0.8) if len(name) <= 100 else []
        cure = f"did you mean {close[0]}?" if close else "docs/reference/configuration.md lists the settings"
        return f"{quoted(name)} is not a Barnabas setting: {cure}"

    def value(self, name: str) -> Any:
        """The value of the setting called `name` (with dots)."""
        return self.__dict__[name.replace(".", "_")]

    def replace(self, **values: Any) -> Self:
        """A copy with some values changed, by attribute name."""
        changed = type(self)(**values)
        return type(self).from_text({**self.given, **changed.given})

    def items(self) -> Iterator[tuple[Setting, Any]]:
        """Every declaration with its value here."""
        for name, declaration in self.declared.items():
            yield declaration, self.value(name)

    @classmethod
    def _layers(cls, given: Mapping[str, str]) -> list[Layer]:
        return [Layer(Source.STATIC_BROKER_CONFIG, given), cls.default_layer()]

    def _fill(self, layers: Sequence[Layer], given: Mapping[str, str]) -> None:
        for name, setting in self.declared.items():
            entry = next(entries(setting.names, layers), None)
            value = setting.default if entry is None else read(setting, entry, self.declared)
            self.__dict__[name.replace(".", "_")] = value
        self.__dict__["given"] = dict(given)
        self.__dict__["layers"] = tuple(layers)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and list(other.items()) == list(self.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.given)})"
