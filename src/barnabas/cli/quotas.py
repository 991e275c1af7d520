"""`barnabas quotas`: how much clients may use of each broker."""

from __future__ import annotations

import math
from collections.abc import Mapping

import click

from barnabas.cli.options import (
    NAME,
    TIMEOUT,
    bootstrap_option,
    example,
    json_option,
    options,
    parse_assignments,
    require_unique,
)
from barnabas.cli.output import print_json, print_table
from barnabas.cli.streams import report

_KINDS = (("user", "user"), ("client-id", "client id"), ("ip", "address"))


@click.group()
def quotas() -> None:
    """Quotas: limit each broker's clients by user, client id and address."""


#: the entity: a user, a client id, both, or an address
_of_options = options(
    *(
        option
        for kind, words in _KINDS
        for option in (
            click.option(f"--of-{kind}", type=NAME, help=f"The quotas of this {words}."),
            click.option(
                f"--any-{kind}", is_flag=True, help=f"The quotas of each {words} that has none of its own."
            ),
        )
    )
)


@quotas.command(
    "set",
    epilog=example(
        """
        barnabas quotas set --of-user alice producer_byte_rate=1048576 consumer_byte_rate=2097152
        barnabas quotas set --of-user alice --any-client-id request_percentage=50
        barnabas quotas set --any-client-id controller_mutation_rate=5
        barnabas quotas set --of-ip 192.0.2.7 connection_creation_rate=10
        barnabas quotas set --of-user alice --remove producer_byte_rate
        """,
        "Rates are bytes, partitions or connections a second. request_percentage is a percentage of the "
        "time of one processor. controller_mutation_rate applies to the whole cluster; each broker applies "
        "the other quotas by itself. The quota of a user with a client id overrides that of the user, which "
        "overrides that of the client id.",
    ),
)
@click.argument("values", type=NAME, nargs=-1, metavar="NAME=VALUE...")
@_of_options
@click.option("--remove", type=NAME, multiple=True, help="Remove a quota; may be repeated.")
@bootstrap_option
def set_quotas(
    values: tuple[str, ...], remove: tuple[str, ...], bootstrap_server: str, **of: str | bool | None
) -> None:
    """Set and remove quotas of a user, a client id, both, or an address."""
    from barnabas.client.quotas import alter_quotas
    from barnabas.client.reach import require_broker

    entity = _entity(of)
    changes: dict[str, float | None] = {
        name: _number(name, text) for name, text in parse_assignments(values, "the command").items()
    }
    require_unique((*changes, *remove), "the command names")
    changes |= dict.fromkeys(remove)
    if not changes:
        raise click.UsageError("nothing to do: write NAME=VALUE, such as producer_byte_rate=1048576")
    require_broker(bootstrap_server)
    alter_quotas(bootstrap_server, TIMEOUT, entity, changes)
    report(f"quotas of {_shown(entity)} are set")


@quotas.command("list", epilog=example("barnabas quotas list --json"))
@json_option
@bootstrap_option
def list_quotas(as_json: bool, bootstrap_server: str) -> None:
    """List all quotas."""
    from barnabas.client.quotas import describe_quotas
    from barnabas.client.reach import require_broker

    require_broker(bootstrap_server)
    found = describe_quotas(bootstrap_server, TIMEOUT)
    if as_json:
        print_json([{"of": dict(entity), "quotas": values} for entity, values in found])
    elif not found:
        click.echo("no quotas", err=True)
    else:
        rows = [
            (_shown(entity), name, f"{value:g}" if value < 1e6 else f"{value:.0f}")
            for entity, values in found
            for name, value in values.items()
        ]
        print_table(["OF", "QUOTA", "VALUE"], rows)


def _entity(of: dict[str, str | bool | None]) -> dict[str, str | None]:
    entity: dict[str, str | None] = {}
    for kind, _ in _KINDS:
        field = kind.replace("-", "_")
        name, is_any = of[f"of_{field}"], of[f"any_{field}"]
        if name is not None and is_any:
            raise click.UsageError(f"--of-{kind} and --any-{kind} exclude each other")
        if name is not None or is_any:
            entity[kind] = None if is_any else str(name)
    if not entity:
        raise click.UsageError("name whose quotas: --of-user, --of-client-id, --of-ip, or an --any- option")
    return entity


def _number(name: str, text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise click.UsageError(f"{name}={text}: write a number more than 0")
    return value


def _shown(entity: Mapping[str, str | None]) -> str:
    return ", ".join(f"any {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())
