"""Generates docs/reference/configuration.md from the declarations of the settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from barnabas.broker.config.broker import BrokerConfig
from barnabas.broker.config.client_metrics import ClientMetricsConfig
from barnabas.broker.config.declaration import INT_MAX, LONG_MAX, Setting, Type, Update
from barnabas.broker.config.group import GroupConfig
from barnabas.broker.config.topic import TopicConfig

_HEAD = """\
# Settings

The names, types and meanings are Apache Kafka's. The broker rejects settings that are not listed, because
they would have no effect. [differences.md](differences.md) lists the defaults that differ from Kafka's.

`barnabas start --set NAME=VALUE` overrides `--config FILE`, and both override the defaults. FILE is TOML,
where a setting is a key (`log.retention.hours = 24`), or Kafka's own `server.properties`. In a
`server.properties`, the broker ignores settings that apply only to Kafka itself, with a warning. If a file
requires an unsupported feature, the broker does not start, and its error names file, line and reason.

Settings marked *at run time* can also change while the broker runs, for one broker or for all of them
(`barnabas configs --help`), and take effect at once. The broker reads the others at its start.

The value of a topic's setting is the first of these that exists: the topic's own value, the value of this
broker, the value of all brokers, the broker's value at start, the default. Sizes are in bytes. Times are in
the unit that the setting's name contains.
"""

_INTEGERS = (Type.INT, Type.SHORT, Type.LONG)
_NUMBERS = {INT_MAX: "2³¹ - 1", LONG_MAX: "2⁶³ - 1"}


def configuration_reference() -> str:
    """Return the page in Markdown."""
    return (
        _HEAD
        + "\n## Broker settings\n\n"
        + _table(BrokerConfig.declared.values(), "Changed", _when)
        + "\nOther spellings: "
        + ", ".join(f"`{other}` for `{name}`" for other, name in BrokerConfig.spellings.items())
        + ".\n\n## Topic settings\n\n"
        + "All topic settings can change at run time. The column *Broker's* has the broker settings that\n"
        + "give the default; the first of them that is set applies.\n\n"
        + _table(TopicConfig.declared.values(), "Broker's", _names)
        + "\n## Group settings\n\n"
        + "These settings apply to groups of the consumer protocol and to share groups. They can change at\n"
        + "run time, also before the group exists.\n\n"
        + _table(GroupConfig.declared.values(), "Broker's", _names)
        + "\n## Settings of client metrics\n\n"
        + "These settings belong to resources of the type `client-metrics` (KIP-714), which\n"
        + "`barnabas configs alter` and Kafka's `kafka-client-metrics.sh` create. They can change at run\n"
        + "time.\n\n"
        + _table(ClientMetricsConfig.declared.values(), "Broker's", _names)
    )


def _table(settings: Iterable[Setting], column: str, cell: Callable[[Setting], str]) -> str:
    rows = "".join(
        f"| `{setting.name}` | {setting.type.name.lower()} | {_default(setting)} | {_allowed(setting)} "
        f"| {cell(setting)} | {setting.doc} |\n"
        for setting in settings
    )
    return f"| Name | Type | Default | Allowed | {column} | Meaning |\n|---|---|---|---|---|---|\n{rows}"


def _default(setting: Setting) -> str:
    text = setting.render(setting.default)
    if not text:
        return "unset" if text is None else "empty"
    return _NUMBERS.get(setting.default, f"`{text}`") if setting.type in _INTEGERS else f"`{text}`"


def _allowed(setting: Setting) -> str:
    if setting.choices:
        return ", ".join(f"`{choice}`" for choice in setting.choices)
    if setting.minimum is not None and setting.maximum is not None:
        return f"{setting.minimum} to {_NUMBERS.get(int(setting.maximum), setting.maximum)}"
    if setting.minimum is not None:
        return f"≥ {setting.minimum}"
    return "true, false" if setting.type is Type.BOOLEAN else ""


def _when(setting: Setting) -> str:
    return "at start" if setting.update is Update.READ_ONLY else "at run time"


def _names(setting: Setting) -> str:
    return ", ".join(f"`{name}`" for name in setting.synonyms)
