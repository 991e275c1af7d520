"""What DescribeConfigs tells of a setting, and what docs/configuration.md is made of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from barnabas.config.layers import Entry, Layer, Source, entries, read
from barnabas.config.setting import Setting
from barnabas.config.settings import Settings


@dataclass(frozen=True, slots=True)
class Description:
    """One setting with the value it has, where it comes from, and all that names it, winner first."""

    setting: Setting
    text: str | None
    source: Source
    entries: tuple[Entry, ...]


def describe(settings: type[Settings], layers: Sequence[Layer]) -> Iterator[Description]:
    """Every declared setting as it stands in `layers`."""
    for setting in settings.declared.values():
        found = tuple(entries((setting.name, *setting.synonyms), layers))
        if found:
            text = setting.render(read(setting, found[0], settings.declared))
            yield Description(setting, text, found[0].source, found)
        else:
            yield Description(setting, setting.render(setting.default), Source.DEFAULT_CONFIG, ())
