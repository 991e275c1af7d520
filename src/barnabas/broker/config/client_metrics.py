"""The settings of a client-metrics resource: which clients push which metrics, and how often (KIP-714)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.broker.config.declaration import Update, integer, text_list
from barnabas.broker.config.layers import Settings
from barnabas.broker.config.patterns import compiled

#: stands for every metric
ALL_METRICS = "*"
#: the attributes that ``match`` can use
ATTRIBUTES = (
    "client_instance_id",
    "client_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)


class ClientMetricsConfig(Settings, update=Update.CLUSTER_WIDE):
    """The settings of a client-metrics resource, for the clients that it matches."""

    metrics: tuple[str, ...] = text_list(
        "metrics", (), doc="The prefixes of the names of the metrics to push; `*` for all."
    )
    interval_ms: int = integer(
        "interval.ms",
        300_000,
        minimum=100,
        maximum=3_600_000,
        doc="The interval, in milliseconds, at which clients push.",
    )
    match: tuple[str, ...] = text_list(
        "match",
        (),
        doc="The clients that push: `ATTRIBUTE=REGEX`, where the whole value of each attribute must "
        "match. The attributes are `client_instance_id`, `client_id`, `client_software_name`, "
        "`client_software_version`, `client_source_address` and `client_source_port`. Without "
        "any, every client pushes.",
    )


def parse_match(selectors: Iterable[str]) -> dict[str, Any]:
    """Parse the items of the setting ``match``: `selectors`, each of them ATTRIBUTE=REGEX.

    Return the compiled expressions (`patterns.compiled`) by the name of the client's attribute. The caller
    matches them with the whole value of the attribute. If two items name an attribute, the later one applies.

    Raises:
        ConfigError: an item is not ATTRIBUTE=REGEX, the attribute is unknown, or the expression is invalid.
    """
    patterns = {}
    for selector in selectors:
        name, equals, pattern = (part.strip() for part in selector.partition("="))
        if not equals or name not in ATTRIBUTES or not pattern:
            raise ClientMetricsConfig.declared["match"].invalid_value(
                selector, f"write ATTRIBUTE=REGEX, with one of {', '.join(ATTRIBUTES)}"
            )
        try:
            patterns[name] = compiled(pattern)
        except ValueError as error:
            raise ConfigError(f"match={name}=… is not a regular expression of RE2: {error}") from None
    return patterns
