"""`barnabas configs`: the settings of topics, groups, brokers and client metrics."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.complete import group_names, settings_of_resource, topic_names
from barnabas.cli.options import (
    BROKER,
    NAME,
    assignments_option,
    bootstrap_option,
    connect,
    example,
    json_option,
    options,
    parse_assignments,
    require_unique,
)
from barnabas.cli.output import Columns, print_listing
from barnabas.cli.streams import report

if TYPE_CHECKING:
    from barnabas.client import Admin


class UnknownSetting(BarnabasError):
    """A resource has no setting of the given name."""


class _Resource(NamedTuple):
    """The resource that --topic, --group, --client-metrics, --broker or --broker-defaults names.

    Attributes:
        kind: "topic", "group", "client metrics" or "broker".
        name: name of the resource; for a broker its id, or "" for the defaults of all brokers.
        words: the resource in messages, such as "topic orders".
    """

    kind: str
    name: str
    words: str


_resource_options = options(
    click.option("--topic", type=NAME, shell_complete=topic_names, help="A topic's settings."),
    click.option("--group", type=NAME, shell_complete=group_names, help="A group's settings."),
    click.option(
        "--client-metrics",
        type=NAME,
        help="The settings of a client-metrics resource, which requests metrics from clients (KIP-714).",
    ),
    click.option("--broker", type=BROKER, metavar="ID", help="A broker's settings."),
    click.option(
        "--broker-defaults", is_flag=True, help="The settings that all brokers of the cluster share."
    ),
)


@click.group()
def configs() -> None:
    """Show and change settings of topics, groups, brokers and client metrics."""


@configs.command(
    epilog=example(
        """
        barnabas configs describe --topic orders
        barnabas configs describe --topic orders --changed
        barnabas configs describe --group billing
        barnabas configs describe --broker 1 --json
        barnabas configs describe --client-metrics all
        barnabas configs describe --broker-defaults
        """,
        "SOURCE is the origin of a value: topic or group (its own setting), dynamic broker (the broker's, "
        "changed while it ran), dynamic default broker (--broker-defaults), static broker (the broker's "
        "configuration file or command line), default. --broker-defaults lists only values that were set.",
    )
)
@_resource_options
@click.option("--changed", is_flag=True, help="Only settings that differ from their defaults.")
@json_option
@bootstrap_option
def describe(changed: bool, as_json: bool, bootstrap_server: str, **resource: Any) -> None:
    """Show settings, their values, and where these come from."""
    kind, name, _ = _resource(**resource)
    rows = [
        {
            "name": value.name,
            "value": value.value,
            "source": value.source,
            "read_only": value.read_only,
            "sensitive": value.sensitive,
            "synonyms": [{"name": synonym, "value": other} for synonym, other in value.synonyms],
        }
        for value in connect(bootstrap_server).configs(kind, name)
        if not (changed and value.source == "default")
    ]
    columns: Columns = {
        "NAME": "name",
        "VALUE": lambda row: "(hidden)" if row["sensitive"] else row["value"],
        "SOURCE": "source",
    }
    print_listing(columns, rows, as_json=as_json, empty="nothing is set: every value is a default")


@configs.command(
    epilog=example(
        """
        barnabas configs alter --topic orders --set retention.ms=3600000
        barnabas configs alter --topic orders --append cleanup.policy=compact
        barnabas configs alter --topic orders --delete retention.ms
        barnabas configs alter --group billing --set consumer.session.timeout.ms=30000
        barnabas configs alter --client-metrics all --set metrics=org.apache.kafka.producer.
        barnabas configs alter --broker 1 --set log.retention.ms=86400000
        barnabas configs alter --broker-defaults --set log.retention.ms=86400000
        """,
        "A broker setting that can change while the broker runs takes effect at once. The broker rejects "
        "any other setting: set it at `barnabas start`. A broker's own value overrides the one in "
        "--broker-defaults.",
    )
)
@_resource_options
@assignments_option("--set", to="to_set", complete=settings_of_resource, help="Set a setting to a value.")
@click.option("--delete", type=NAME, multiple=True, help="Reset a setting to its default.")
@assignments_option("--append", to="append", help="Add a value to a setting that is a list.")
@assignments_option("--subtract", to="subtract", help="Remove a value from a setting that is a list.")
@bootstrap_option
def alter(
    to_set: tuple[str, ...],
    delete: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    bootstrap_server: str,
    **resource: Any,
) -> None:
    """Change some settings and leave the others as they are."""
    kind, name, words = _resource(**resource)
    if not (to_set or delete or append or subtract):
        raise click.UsageError("nothing to alter: give --set, --delete, --append or --subtract")
    values = {
        "set": parse_assignments(to_set, "--set"),
        "append": parse_assignments(append, "--append"),
        "subtract": parse_assignments(subtract, "--subtract"),
    }
    require_unique([*delete, *(each for group in values.values() for each in group)], "the command changes")
    admin = connect(bootstrap_server)
    require_known(admin, kind, name, delete)
    admin.alter_configs(kind, name, delete=delete, **values)
    report(f"altered {words}")


def require_known(admin: Admin, kind: str, name: str, settings: Sequence[str]) -> None:
    """Check that all `settings` exist, because brokers silently ignore the reset of an unknown setting.

    Args:
        kind: "topic", "group", "client metrics" or "broker".
        name: name of the resource; for a broker its id, or "" for the defaults of all brokers.

    Raises:
        UnknownSetting: the resource lacks one of the settings.
        KafkaError, ClientError: a broker rejects the request, or no broker answers.
    """
    if not settings:
        return
    if kind == "broker" and not name:
        name = str(admin.cluster().nodes[0].id)
    known = [value.name for value in admin.configs(kind, name)]
    for setting in settings:
        if setting not in known:
            near = difflib.get_close_matches(setting, known, 1)
            hint = f": did you mean {near[0]}?" if near else ""
            raise UnknownSetting(f"a {kind} has no setting {setting}{hint}")


def _resource(
    topic: str | None,
    group: str | None,
    client_metrics: str | None,
    broker: int | None,
    broker_defaults: bool,
) -> _Resource:
    given = []
    if topic is not None:
        given.append(_Resource("topic", topic, f"topic {topic}"))
    if group is not None:
        given.append(_Resource("group", group, f"group {group}"))
    if client_metrics is not None:
        given.append(_Resource("client metrics", client_metrics, f"client metrics {client_metrics}"))
    if broker is not None:
        given.append(_Resource("broker", str(broker), f"broker {broker}"))
    if broker_defaults:
        given.append(_Resource("broker", "", "the defaults of all brokers"))
    if len(given) != 1:
        raise click.UsageError(
            "name one: --topic NAME, --group NAME, --client-metrics NAME, --broker ID or --broker-defaults"
        )
    return given[0]
