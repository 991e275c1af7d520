"""Options and forms that several commands share."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from barnabas.client import Admin

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"


def bootstrap_option(command: F) -> F:
    """--bootstrap-server, or the environment variable BARNABAS_BOOTSTRAP_SERVER."""
    return click.option(
        "--bootstrap-server",
        "-b",
        metavar="HOST:PORT",
        envvar="BARNABAS_BOOTSTRAP_SERVER",
        default=DEFAULT_BOOTSTRAP,
        show_default=True,
        help="A broker of the cluster; several by commas.",
    )(command)


def json_option(command: F) -> F:
    """--json: for programs."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(command)


def log_level_option(command: F) -> F:
    """--log-level: for what runs until it is stopped."""
    return click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="How much to say on stderr.",
    )(command)


def log_to_stderr(log_level: str) -> None:
    """Have what is logged from `log_level` on, as `log_level_option` gives it, go to stderr."""
    import logging  # most commands log nothing

    logging.basicConfig(
        stream=sys.stderr, level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )


def example(commands: str, words: str = "") -> str:
    """The end of a help text: commands to copy, then anything else worth saying."""
    lines = inspect.cleandoc(commands).splitlines()
    text = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    return f"{text}\n\n{words}" if words else text


def parse_assignments(items: Iterable[str], option: str) -> dict[str, str]:
    """`name=value` items as a dict.

    Raises:
        click.UsageError: an item has no `=`.
    """
    values = {}
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {item}: write NAME=VALUE")
        values[name.strip()] = value.strip()
    return values


def connect(bootstrap_server: str) -> Admin:
    """An admin client, once it is known that somebody answers.

    Raises:
        ClientError: nobody does.
    """
    from barnabas.client import Admin
    from barnabas.client.settings import require_broker

    require_broker(bootstrap_server)
    return Admin(bootstrap_server)
