"""Immutable, typed sets of values. Each value comes from the first layer that sets it.

For a topic the first layers are the dynamic settings of the topic, of the broker and of all brokers. Then
come the settings with which the broker was started, and the defaults. Within a layer a setting can have
several names: its own name and then its synonyms (``log.retention.ms``, ``log.retention.minutes``,
``log.retention.hours``). The value comes from the first layer with one of these names, and from the first
name in this layer.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import Any, ClassVar, NamedTuple, Self

from barnabas.base.errors import ConfigError
from barnabas.base.text import quoted
from barnabas.broker.config.declaration import Setting, Update

_MILLISECONDS = {"hours": 3_600_000, "minutes": 60_000}


class Source(IntEnum):
    """The source of a value, by its number in DescribeConfigs (KIP-226)."""

    DYNAMIC_TOPIC_CONFIG = 1
    DYNAMIC_BROKER_CONFIG = 2
    DYNAMIC_DEFAULT_BROKER_CONFIG = 3
    STATIC_BROKER_CONFIG = 4
    DEFAULT_CONFIG = 5
    DYNAMIC_CLIENT_METRICS_CONFIG = 7
    DYNAMIC_GROUP_CONFIG = 8


class Layer(NamedTuple):
    """The settings of one source, as text by name."""

    source: Source
    texts: Mapping[str, str]


class Entry(NamedTuple):
    """The text that a layer has for a setting, with the setting's name in this layer and the layer's source.

    A setting can have several entries. The first one gives the value.
    """

    name: str
    text: str
    source: Source


def entries(names: Sequence[str], layers: Iterable[Layer]) -> Iterator[Entry]:
    """Yield every text that `layers` have for one of `names`.

    The entries are in the order of the layers, and in each layer in the order of `names`. The first entry
    gives the value.
    """
    for layer in layers:
        for name in names:
            if name in layer.texts:
                yield Entry(name, layer.texts[name], layer.source)


def read(setting: Setting, entry: Entry, declared: Mapping[str, Setting]) -> Any:
    """Return the typed value that `entry` gives to `setting`.

    The name of `entry` can be a synonym of the setting. If the synonym is in hours or minutes, the value is
    converted to milliseconds, and a negative number becomes -1. For example, ``log.retention.hours`` = 2
    gives ``log.retention.ms`` = 7200000.

    `declared` has the settings by name. If it has the synonym, the synonym's own type and limits also apply.

    Raises:
        ConfigError: the text is not allowed.
    """
    spoken = declared.get(entry.name, setting)
    value = spoken.parse(entry.text)
    unit = entry.name.rpartition(".")[2]
    if unit in _MILLISECONDS and setting.name.endswith(".ms"):
        value = -1 if value < 0 else value * _MILLISECONDS[unit]
    setting.check(value)
    return value


class Settings:
    """The base of classes with one attribute for each declared setting. Their objects are immutable.

    `from_text` and `from_layers` make an object from texts. The constructor takes typed values by attribute
    name.
    """

    #: by Kafka's name, in the order of declaration
    declared: ClassVar[dict[str, Setting]] = {}
    #: the defaults, by attribute
    _defaults: ClassVar[dict[str, Any]] = {}
    #: by name, the settings with this name or this synonym
    _set_by: ClassVar[dict[str, list[Setting]]] = {}
    #: other spellings that may be given in place of a declared name
    spellings: ClassVar[Mapping[str, str]] = {}

    #: the values that were set, as text, by the name that set them; without defaults
    given: Mapping[str, str]
    #: the sources of the values; for each value, the first source that sets it
    layers: Sequence[Layer]

    def __init_subclass__(cls, *, update: Update | None = None) -> None:
        """Collect the declared settings. If `update` is given, it replaces the `Update` of each of them."""
        super().__init_subclass__()
        cls.declared, cls._defaults, cls._set_by = {}, {}, defaultdict(list)
        for attribute, setting in list(vars(cls).items()):
            if isinstance(setting, Setting):
                assert setting.name == attribute.replace("_", "."), f"{attribute} declares {setting.name}"
                setting = setting if update is None else replace(setting, update=update)
                cls.declared[setting.name] = setting
                for name in setting.names:
                    cls._set_by[name].append(setting)
        defaults = [cls.default_layer()]
        for name, setting in cls.declared.items():
            value = setting.default
            if value is None and (entry := next(entries(setting.names, defaults), None)) is not None:
                value = read(setting, entry, cls.declared)  # the default of a synonym
            cls._defaults[name.replace(".", "_")] = value

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
        """Return the declaration of `name`.

        Raises:
            ConfigError: no such setting is declared.
        """
        try:
            return cls.declared[cls.spellings.get(name, name)]
        except KeyError:
            raise ConfigError(cls._explain_unknown(name)) from None

    @classmethod
    def from_text(cls, text: Mapping[str, str]) -> Self:
        """Make settings from texts, by the names of settings (with dots).

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
        """Make settings from `layers`. The first layer that sets a value has precedence.

        `given` are the texts that the user set, by name. The object only keeps them, as the attribute
        `given`: all values come from `layers`.

        Raises:
            ConfigError: a value is not allowed.
        """
        self = cls.__new__(cls)
        self._fill(layers, given)
        return self

    @classmethod
    def read_one(cls, name: str, layers: Sequence[Layer]) -> Any:
        """Return the value of one setting, which `from_layers` would give it; `name` has dots.

        Raises:
            ConfigError: the value is not allowed.
        """
        setting = cls.declared[name]
        set_layers = (layer for layer in layers if layer.source is not Source.DEFAULT_CONFIG)
        entry = next(entries(setting.names, set_layers), None)
        return cls._defaults[name.replace(".", "_")] if entry is None else read(setting, entry, cls.declared)

    @classmethod
    def default_layer(cls) -> Layer:
        """Return a layer with every default that is not None, as text."""
        texts = ((setting.name, setting.render(setting.default)) for setting in cls.declared.values())
        return Layer(Source.DEFAULT_CONFIG, {name: text for name, text in texts if text is not None})

    @classmethod
    def _explain_unknown(cls, name: str) -> str:
        """Return the text of the error for a setting `name` that is not declared: one line, with a hint."""
        import difflib  # wanted only when something is wrong

        # A long name cannot be a misspelt one, and comparing it would take long.
        close = difflib.get_close_matches(name, cls.declared, 1, cutoff=0.8) if len(name) <= 100 else []
        hint = f"did you mean {close[0]}?" if close else "docs/reference/configuration.md lists the settings"
        return f"{quoted(name)} is not a Barnabas setting: {hint}"

    def value(self, name: str) -> Any:
        """Return the value of the setting with this name (with dots)."""
        return self.__dict__[name.replace(".", "_")]

    def replace(self, **values: Any) -> Self:
        """Return a copy with some changed values. The names of the arguments are those of attributes.

        Raises:
            ConfigError: a value is not allowed.
        """
        changed = type(self)(**values)
        return type(self).from_text({**self.given, **changed.given})

    def items(self) -> Iterator[tuple[Setting, Any]]:
        """Yield (setting, value) for each declared setting, with its value in this object."""
        for name, declaration in self.declared.items():
            yield declaration, self.value(name)

    @classmethod
    def _layers(cls, given: Mapping[str, str]) -> list[Layer]:
        return [Layer(Source.STATIC_BROKER_CONFIG, given)]

    def _fill(self, layers: Sequence[Layer], given: Mapping[str, str]) -> None:
        """Set all values from `layers`, and the attributes `given` and `layers`.

        The defaults are not parsed, so the work depends only on the other layers.
        """
        values = self.__dict__
        values.update(self._defaults)
        named = (
            name for layer in layers if layer.source is not Source.DEFAULT_CONFIG for name in layer.texts
        )
        for setting in {found.name: found for name in named for found in self._set_by.get(name, ())}.values():
            entry = next(entries(setting.names, layers))
            values[setting.name.replace(".", "_")] = read(setting, entry, self.declared)
        values["given"], values["layers"] = dict(given), tuple(layers)

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable: use replace({name}=...)")

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and list(other.items()) == list(self.items())

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"{type(self).__name__}({dict(self.given)})"
