"""Options and option types that several commands share."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

if TYPE_CHECKING:
    from barnabas.client import Admin

    _TextType = click.ParamType[str]
    _NumberType = click.ParamType[float]
    _PatternType = click.ParamType[re.Pattern[str]]
else:  # generic from click 8.5 on
    _TextType = _NumberType = _PatternType = click.ParamType

F = TypeVar("F", bound=Callable[..., Any])
#: returns the completions of an incomplete word
Completion = Callable[[click.Context, click.Parameter, str], list[str]]

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
#: seconds that a broker has to answer
TIMEOUT = 15.0


class _Servers(_TextType):
    """Type of an option: HOST:PORT,... as text."""

    name = "servers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        from barnabas.client.addresses import parse_servers
        from barnabas.client.errors import ClientError

        try:
            parse_servers(value)
        except ClientError as error:
            self.fail(str(error), param, ctx)
        return str(value)


class AnyCase(click.Choice):  # type: ignore[type-arg]  # generic from click 8.2 on
    """Type of an option: one of several names, in upper or lower case. Messages show the names as defined."""

    def __init__(self, choices: Sequence[str]) -> None:
        super().__init__(choices, case_sensitive=False)

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        return f"{value!r} is not one of {', '.join(self.choices)}"


class _Name(_TextType):
    """Type of an option: a name of a topic, a group or a setting. It must not be empty."""

    name = "name"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not value.strip():
            self.fail("a name must not be empty", param, ctx)
        try:
            value.encode()
        except UnicodeEncodeError:
            self.fail(f"{value!r} is not valid UTF-8", param, ctx)
        return str(value)


class Whole(click.IntRange):
    """Type of an option: a whole number in a range. Help texts call the number N."""

    def get_metavar(self, *args: Any, **more: Any) -> str:
        return "N"


class _Brokers(_TextType):
    """Type of an option: a number of brokers, or "auto", as text."""

    name = "brokers"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if value != "auto":
            click.IntRange(1, 100).convert(value, param, ctx)
        return str(value)


class _Regex(_PatternType):
    """Type of an option: a regular expression."""

    name = "pattern"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> re.Pattern[str]:
        try:
            return re.compile(value)
        except re.error as error:
            self.fail(f"{value!r} is not a regular expression: {error}", param, ctx)


class _Seconds(_NumberType):
    """Type of an option: seconds, a number from 0 to `_MAX_SECONDS`."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not 0 <= number <= _MAX_SECONDS:
            self.fail(f"{value} is not a number from 0 to {_MAX_SECONDS:g}", param, ctx)
        return number


#: about 30 years of seconds
_MAX_SECONDS = 1e9

SERVERS = _Servers()
NAME = _Name()
BROKERS = _Brokers()
DURATION = _Seconds()
REGEX = _Regex()
INT16 = Whole(1, 2**15 - 1)
INT32 = Whole(1, 2**31 - 1)
BROKER = PARTITION = Whole(0, 2**31 - 1)
OFFSET = Whole(0, 2**63 - 1)
INT64 = Whole(-(2**63), 2**63 - 1)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
EXISTING_FOLDER = click.Path(exists=True, file_okay=False, path_type=Path)


def options(*each: Callable[[Any], Any]) -> Callable[[F], F]:
    """Return a decorator that adds several options to a command.

    Args:
        each: the options, as `click.option` returns them. The command's help lists them in this order.
    """

    def add(command: F) -> F:
        for decorator in reversed(each):
            command = decorator(command)
        return command

    return add


def _cluster_options(*config: str) -> Callable[[F], F]:
    kept: dict[str, Any] = {"is_eager": True, "expose_value": False, "callback": _kept}
    return options(
        click.option(
            "--bootstrap-server",
            "-b",
            type=SERVERS,
            metavar="HOST:PORT",
            envvar="BARNABAS_BOOTSTRAP_SERVER",
            callback=_to_servers,
            help="Brokers to connect to first, separated by commas.  [default: those of the client "
            f"settings, or {DEFAULT_BOOTSTRAP}]",
        ),
        click.option(
            *config,
            "client_config",
            type=FILE,
            envvar="BARNABAS_CONFIG",
            **kept,
            help="A file of client settings: Kafka's client.properties, or TOML. The environment variable "
            "BARNABAS_CONFIG can also name it.",
        ),
        click.option(
            "--profile",
            type=NAME,
            envvar="BARNABAS_PROFILE",
            **kept,
            help="The name of a table with client settings in ~/.config/barnabas/profiles.toml.",
        ),
        click.option(
            "--user",
            type=NAME,
            **kept,
            help="Log in as this user, with the password in BARNABAS_PASSWORD or one that you type.",
        ),
    )


def _kept(ctx: click.Context, param: click.Parameter, value: Any) -> Any:
    """Store an option's value in the context, where `_to_servers` reads it, and return the value.

    This is the callback of --config, --profile and --user.
    """
    ctx.meta[f"barnabas.{param.name}"] = value
    return value


def _to_servers(ctx: click.Context, param: click.Parameter, given: str | None) -> str:
    """Return the addresses of brokers (HOST:PORT,...): the callback of --bootstrap-server.

    The text also has the connection settings (`Servers`) if --config, --profile or --user is given. Without
    any address the result is `DEFAULT_BOOTSTRAP`.
    """
    config, profile, user = (
        ctx.meta.get(f"barnabas.{each}") for each in ("client_config", "profile", "user")
    )
    if config is None and profile is None and user is None:
        return given or DEFAULT_BOOTSTRAP
    from barnabas.cli.client_config import read_servers

    # The command line overrides the environment, also a file's addresses.
    is_of_environment = ctx.get_parameter_source("bootstrap_server") is ParameterSource.ENVIRONMENT
    default = given if given and is_of_environment else DEFAULT_BOOTSTRAP
    named = None if is_of_environment else given
    return read_servers(named, default, config, profile, user, may_ask=not ctx.resilient_parsing)


def unique_names(ctx: click.Context, param: click.Parameter, names: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names. Raise click.UsageError if one occurs twice. This is an argument's callback."""
    require_unique(names, "the command names")
    return names


#: how to reach a cluster: its address, --config, --profile and --user
bootstrap_option = _cluster_options("--config", "--command-config")
#: the same for a command that has a --config of its own
bootstrap_option_beside_config = _cluster_options("--command-config")
#: for commands that run brokers
console_option = click.option(
    "--console",
    metavar="HOST:PORT",
    is_flag=False,
    flag_value="127.0.0.1:8080",
    help="Also run the web console at this address, by default 127.0.0.1:8080 (see `barnabas console`). "
    "A further line on stdout is the link that opens it in a browser.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")
#: for commands that run until they are stopped
log_options = options(
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        show_default=True,
        help="The format of the log; json is an object a line.",
    ),
    click.option(
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"]),
        default="info",
        show_default=True,
        help="The lowest level in the log, which goes to stderr.",
    ),
)


def names_argument(metavar: str, complete: Completion | None = None, name: str = "names") -> Callable[[F], F]:
    """Return a click argument for several names, which may not repeat.

    Args:
        metavar: text for the argument in help texts. If it begins with "[", the argument may be left out.
        complete: completes names in a shell; None completes nothing.
        name: name of the command's parameter.
    """
    return click.argument(
        name,
        metavar=metavar,
        nargs=-1,
        required=not metavar.startswith("["),
        type=NAME,
        callback=unique_names,
        shell_complete=complete,
    )


def assignments_option(
    *names: str, help: str, to: str = "settings", complete: Completion | None = None
) -> Callable[[F], F]:
    """Return a click option NAME=VALUE that may be repeated. `parse_assignments` parses its values.

    Args:
        names: names of the option, such as "--set".
        help: help text of the option.
        to: name of the command's parameter.
        complete: completes the names in a shell; None completes nothing.
    """
    return click.option(*names, to, metavar="NAME=VALUE", multiple=True, shell_complete=complete, help=help)


def example(commands: str, words: str = "") -> str:
    """Return the end of a help text: the example `commands`, and then the paragraph `words`."""
    lines = inspect.cleandoc(commands).splitlines()
    text = "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)
    return f"{text}\n\n{words}" if words else text


def parse_pairs(items: Iterable[str], option: str) -> list[tuple[str, str]]:
    """Return the names and values of `name=value` items, in the same order, without spaces around them.

    `option` is the name of the option in the error message.

    Raises:
        click.UsageError: an item has no name, or no `=`.
    """
    pairs = []
    for item in items:
        name, equals, value = item.partition("=")
        if not equals or not name.strip():
            raise click.UsageError(f"{option} {item}: write NAME=VALUE")
        pairs.append((name.strip(), value.strip()))
    return pairs


def parse_assignments(items: Iterable[str], option: str) -> dict[str, str]:
    """Return `name=value` items as a dict. `option` is the name of the option in the error message.

    Raises:
        click.UsageError: an item has no name or no `=`, or a name comes twice.
    """
    pairs = parse_pairs(items, option)
    require_unique((name for name, _ in pairs), f"{option} sets")
    return dict(pairs)


def require_unique(names: Iterable[str], what: str) -> None:
    """Raise click.UsageError if a name occurs twice.

    `what` is the beginning of the message, such as "the command names".
    """
    seen = set()
    for name in names:
        if name in seen:
            raise click.UsageError(f"{what} {name} twice")
        seen.add(name)


def connect(bootstrap_server: str) -> Admin:
    """Check that a broker of the cluster answers, and return an admin client.

    Raises:
        ClientError: no broker answers.
    """
    from barnabas.client import Admin
    from barnabas.client.reach import require_broker

    require_broker(bootstrap_server)
    return Admin(bootstrap_server)
