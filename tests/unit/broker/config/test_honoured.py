"""Every declared setting has an effect: code outside of the declarations reads it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from barnabas.broker.config import BrokerConfig, ClientMetricsConfig, GroupConfig, TopicConfig
from barnabas.broker.config.group import LIMITED, limit_of

SOURCE = Path(__file__).parents[4] / "src" / "barnabas"

#: every attribute that is read somewhere, e.g. ``config.num_partitions``
READ = {
    attribute
    for path in SOURCE.rglob("*.py")
    if path.parent.name != "config" or path.name == "group.py"  # which checks what holds between settings
    for attribute in re.findall(r"\.([a-z]\w+)\b(?!\s*=[^=])", path.read_text(encoding="utf-8"))
}
READ |= {limit_of(name, bound).replace(".", "_") for name in LIMITED for bound in ("min", "max")}

#: what each setting stands in for: a topic's whose default it gives, a broker's that it spells differently
STANDS_IN_FOR: dict[str, set[str]] = {}
for settings in (TopicConfig, GroupConfig, ClientMetricsConfig, BrokerConfig):
    for setting in settings.declared.values():
        for synonym in setting.synonyms:
            STANDS_IN_FOR.setdefault(synonym, set()).add(setting.name)


@pytest.mark.parametrize(
    "name",
    [
        *TopicConfig.declared,
        *GroupConfig.declared,
        *ClientMetricsConfig.declared,
        *BrokerConfig.declared,
    ],
)
def test_setting_is_read_somewhere(name: str) -> None:
    names = {name} | STANDS_IN_FOR.get(name, set())
    read = {each.replace(".", "_") for each in names} & READ
    assert read, f"{name} is declared and nothing honours it: honour it, or take it out so that it is refused"
