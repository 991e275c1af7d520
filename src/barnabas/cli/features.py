"""`barnabas features`: lists the features of a cluster, and upgrades and downgrades their levels."""

from __future__ import annotations

import click

from barnabas.cli.options import NAME, bootstrap_option, connect, example, json_option, parse_assignments
from barnabas.cli.output import Columns, print_listing
from barnabas.cli.streams import report

_COLUMNS: Columns = {"FEATURE": "feature", "LEVEL": "level", "LOWEST": "lowest", "HIGHEST": "highest"}

_levels_argument = click.argument("levels", type=NAME, nargs=-1, metavar="NAME=LEVEL...")


@click.group()
def features() -> None:
    """Features of a cluster: list their levels, upgrade and downgrade."""


@features.command("list", epilog=example("barnabas features list\nbarnabas features list --json"))
@json_option
@bootstrap_option
def list_features(as_json: bool, bootstrap_server: str) -> None:
    """List the features, the level that the cluster uses, and the levels that a broker supports."""
    rows = [
        {"feature": each.name, "level": each.level, "lowest": each.lowest, "highest": each.highest}
        for each in connect(bootstrap_server).features()
    ]
    print_listing(_COLUMNS, rows, as_json=as_json, empty="no features")


@features.command(
    epilog=example(
        "barnabas features upgrade share.version=2",
        "Upgrade all brokers first. Each broker must run and support the level.",
    )
)
@_levels_argument
@bootstrap_option
def upgrade(levels: tuple[str, ...], bootstrap_server: str) -> None:
    """Raise the levels of features for the whole cluster."""
    _set(levels, bootstrap_server, is_downgrade=False)


@features.command(epilog=example("barnabas features downgrade share.version=1"))
@_levels_argument
@bootstrap_option
def downgrade(levels: tuple[str, ...], bootstrap_server: str) -> None:
    """Lower the levels of features for the whole cluster. Level 0 turns a feature off."""
    _set(levels, bootstrap_server, is_downgrade=True)


def _set(items: tuple[str, ...], bootstrap_server: str, *, is_downgrade: bool) -> None:
    levels = {name: _level(name, text) for name, text in parse_assignments(items, "the command").items()}
    if not levels:
        raise click.UsageError("nothing to do: write NAME=LEVEL, such as share.version=2")
    connect(bootstrap_server).update_features(levels, is_downgrade=is_downgrade)
    for name, level in levels.items():
        report(f"{name} is at level {level}")


def _level(name: str, text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 4:
        raise click.UsageError(f"the level of {name} is a whole number, not {text!r}")
    return int(text)
