"""Tab completion with names from the broker, or without names if it does not answer quickly."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.options import DEFAULT_BOOTSTRAP

if TYPE_CHECKING:
    from barnabas.client import Admin

#: Seconds to wait for the broker: completion without names is better than a shell that hangs at a key press.
_PATIENCE = 1.0


def topic_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of topics that begin with the typed text; none if the broker does not answer in 1 s.

    Names of internal topics are included only if the typed text begins with ``_``.
    """
    return _ask(ctx, incomplete, lambda admin: admin.topics(internal=incomplete.startswith("_")))


def group_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the names of groups that begin with the typed text."""
    return _ask(ctx, incomplete, lambda admin: (listing.group for listing in admin.groups()))


def topic_settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return `name=` for each topic setting whose name begins with the typed text."""
    from barnabas.broker.config import TopicConfig

    return [f"{name}=" for name in TopicConfig.declared if name.startswith(incomplete)]


def broker_settings(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return `name=` for each broker setting whose name begins with the typed text."""
    from barnabas.broker.config import BrokerConfig

    return [f"{name}=" for name in BrokerConfig.declared if name.startswith(incomplete)]


def settings_of_resource(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return `name=` for each setting whose name begins with the typed text.

    The options --group, --client-metrics, --broker and --broker-defaults decide whose settings these are. By
    default they are the settings of topics.
    """
    if ctx.params.get("group"):
        from barnabas.broker.config import GroupConfig

        return [f"{name}=" for name in GroupConfig.declared if name.startswith(incomplete)]
    if ctx.params.get("client_metrics"):
        from barnabas.broker.config import ClientMetricsConfig

        return [f"{name}=" for name in ClientMetricsConfig.declared if name.startswith(incomplete)]
    brokers = ctx.params.get("broker") is not None or ctx.params.get("broker_defaults")
    names = broker_settings if brokers else topic_settings
    return names(ctx, param, incomplete)


def _ask(ctx: click.Context, incomplete: str, question: Callable[[Admin], Iterable[str]]) -> list[str]:
    from barnabas.client import Admin
    from barnabas.client.reach import require_broker

    servers = ctx.params.get("bootstrap_server") or DEFAULT_BOOTSTRAP
    with contextlib.suppress(BarnabasError):
        require_broker(servers, _PATIENCE)
        return [name for name in question(Admin(servers, timeout=_PATIENCE)) if name.startswith(incomplete)]
    return []
