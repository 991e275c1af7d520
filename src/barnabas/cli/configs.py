"""`barnabas configs`: the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from barnabas.cli.complete import settings_of_resource, topic_names
from barnabas.cli.options import bootstrap_option, connect, example, json_option, parse_assignments
from barnabas.cli.output import print_json, print_table

F = TypeVar("F", bound=Callable[..., Any])


def _resource_options(command: F) -> F:
    command = click.option(
        "--broker",
        type=click.IntRange(0, 2**31 - 1),
        metavar="ID",
        help="The broker whose settings are meant.",
    )(command)
    return click.option(
        "--topic", metavar="NAME", shell_complete=topic_names, help="The topic whose settings are meant."
    )(command)


@click.group()
def configs() -> None:
    """Show and change settings of topics and brokers."""


@configs.command(
    epilog=example(
        """
        barnabas configs describe --topic orders
        barnabas configs describe --topic orders --changed
        barnabas configs describe --broker 1 --json
        """,
        "SOURCE says where a value comes from: the topic's own setting, the broker's (static: its "
        "configuration "
        "file; dynamic: changed while it ran), or the default.",
    )
)
@_resource_options
@click.option("--changed", is_flag=True, help="Only what is not a default.")
@json_option
@bootstrap_option
def describe(
    topic: str | None, broker: int | None, changed: bool, as_json: bool, bootstrap_server: str
) -> None:
    """Show the settings of a topic or a broker, with where each value comes from."""
    kind, name = _resource(topic, broker)
    values = connect(bootstrap_server).configs(kind, name)
    values = [value for value in values if not (changed and value.source == "default")]
    if as_json:
        print_json(
            [
                {
                    "name": value.name,
                    "value": value.value,
                    "source": value.source,
                    "read_only": value.read_only,
                    "sensitive": value.sensitive,
                    "synonyms": dict(value.synonyms),
                }
                for value in values
            ]
        )
        return
    print_table(
        ["NAME", "VALUE", "SOURCE"],
        [(value.name, "(hidden)" if value.sensitive else value.value, value.source) for value in values],
    )


@configs.command(
    epilog=example(
        """
        barnabas configs alter --topic orders --set retention.ms=3600000
        barnabas configs alter --topic orders --append cleanup.policy=compact
        barnabas configs alter --topic orders --delete retention.ms
        barnabas configs alter --broker 1 --set log.retention.ms=86400000
        """,
        "A broker setting that can change while the broker runs takes effect at once; any other is "
        "refused: set "
        "it at `barnabas start`.",
    )
)
@_resource_options
@click.option(
    "--set",
    "to_set",
    metavar="NAME=VALUE",
    multiple=True,
    shell_complete=settings_of_resource,
    help="Give a setting a value.",
)
@click.option("--delete", metavar="NAME", multiple=True, help="Put a setting back to its default.")
@click.option("--append", metavar="NAME=VALUE", multiple=True, help="Add to a list.")
@click.option("--subtract", metavar="NAME=VALUE", multiple=True, help="Take from a list.")
@bootstrap_option
def alter(
    topic: str | None,
    broker: int | None,
    to_set: tuple[str, ...],
    delete: tuple[str, ...],
    append: tuple[str, ...],
    subtract: tuple[str, ...],
    bootstrap_server: str,
) -> None:
    """Change settings of a topic or a broker, leaving the others as they are."""
    kind, name = _resource(topic, broker)
    if not (to_set or delete or append or subtract):
        raise click.UsageError("nothing to alter: give --set, --delete, --append or --subtract")
    connect(bootstrap_server).alter_configs(
        kind,
        name,
        set=parse_assignments(to_set, "--set"),
        delete=delete,
        append=parse_assignments(append, "--append"),
        subtract=parse_assignments(subtract, "--subtract"),
    )
    click.echo(f"altered {kind} {name}")


def _resource(topic: str | None, broker: int | None) -> tuple[str, str]:
    if (topic is None) == (broker is None):
        raise click.UsageError("name one: --topic NAME or --broker ID")
    return ("topic", topic) if topic is not None else ("broker", str(broker))
