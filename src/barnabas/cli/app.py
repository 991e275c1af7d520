"""The root of the commands: their names, and the module of each."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import IO, Any, cast

import click

import barnabas
from barnabas.base.errors import BarnabasError

#: The exit code in shells: 128 plus the number of SIGINT.
_INTERRUPTED = 130

_EXAMPLES = """\b
Begin with:
  barnabas start                                  run a broker here and now
  barnabas topics create orders --partitions 3    in a second terminal
  echo hello | barnabas produce orders
  barnabas consume orders --from-beginning

Every command has --help with examples. To use a broker other than 127.0.0.1:9092, give --bootstrap-server or
set the environment variable BARNABAS_BOOTSTRAP_SERVER.
"""


class LazyGroup(click.Group):
    """A group that imports a command only to run it or to print its help.

    So `barnabas start` loads no Kafka client, and completing a word loads almost nothing.
    """

    def __init__(self, *args: Any, lazy: Mapping[str, tuple[str, str]], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self._lazy:
            return None
        module, _, name = self._lazy[cmd_name][0].partition(":")
        return cast(click.Command, getattr(import_module(module), name))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, words) for name, (_, words) in self._lazy.items()])


class Root(LazyGroup):
    """The group of all commands. It reports an error in one line, and exits with the error's code."""

    def make_context(self, *args: Any, **extra: Any) -> click.Context:
        with _told_in_one_line():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: click.Context) -> Any:
        with _told_in_one_line():
            return super().invoke(ctx)


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    """Convert every error to a click.ClickException, which click shows in one line.

    KeyboardInterrupt, and a closed stdout, become a click.exceptions.Exit with an exit code.
    """
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        raise _WrongUsage(error) from None
    except BarnabasError as error:
        raise _of_barnabas(error) from error
    except BrokenPipeError as error:
        if error.filename not in (None, "stdout"):
            raise click.ClickException(_os_error(error)) from error
        raise click.exceptions.Exit(0) from None  # the reader of stdout has what it wants
    except OSError as error:
        raise click.ClickException(_os_error(error)) from error
    except UnicodeEncodeError as error:  # an argument with bytes that are no text
        raise click.ClickException(f"{error.object!r} is not valid UTF-8") from error
    except KeyboardInterrupt:
        raise click.exceptions.Exit(_INTERRUPTED) from None


class _WrongUsage(click.UsageError):
    """A UsageError that is shown in one line, where click's own class shows four lines."""

    def __init__(self, error: click.UsageError) -> None:
        super().__init__(error.format_message(), error.ctx)

    def show(self, file: IO[Any] | None = None) -> None:
        command = self.ctx.command_path if self.ctx is not None else "barnabas"
        words = " ".join(self.message.split()).rstrip(".")
        click.echo(f"Error: {words} (see `{command} --help`)", file=file or sys.stderr)


def _of_barnabas(error: Exception) -> click.ClickException:
    from barnabas.client.errors import SettingError, UnreachableError

    words = " ".join(str(error).split("\n"))
    if isinstance(error, UnreachableError):
        words += " with --bootstrap-server HOST:PORT"
    return (
        _WrongUsage(click.UsageError(words))
        if isinstance(error, SettingError)
        else click.ClickException(words)
    )


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"


@click.group(
    cls=Root,
    lazy={
        "start": ("barnabas.cli.start.command:start", "Run a broker."),
        "topics": ("barnabas.cli.topics:topics", "Create, list, describe, alter, move and delete topics."),
        "produce": ("barnabas.cli.produce:produce", "Send lines of stdin or of a file to a topic."),
        "consume": ("barnabas.cli.consume:consume", "Print the records of a topic."),
        "groups": ("barnabas.cli.groups:groups", "Consumer groups: list, lag, reset offsets, delete."),
        "transactions": (
            "barnabas.cli.transactions:transactions",
            "Transactions: list, describe, find hanging ones and abort them.",
        ),
        "configs": (
            "barnabas.cli.configs:configs",
            "Show and change settings of topics, groups and brokers.",
        ),
        "brokers": ("barnabas.cli.brokers:brokers", "List, describe and drain brokers."),
        "features": (
            "barnabas.cli.features:features",
            "Features of a cluster: list their levels, upgrade and downgrade.",
        ),
        "users": ("barnabas.cli.users:users", "Users and their passwords: add, list, delete."),
        "tokens": (
            "barnabas.cli.tokens:tokens",
            "Delegation tokens: create, list, renew, expire.",
        ),
        "acls": ("barnabas.cli.acls:acls", "Access control lists: grant, revoke, list, check."),
        "quotas": ("barnabas.cli.quotas:quotas", "Quotas of clients: set and list."),
        "tls": ("barnabas.cli.tls:tls", "Make certificates: an authority, brokers, clients."),
        "doctor": ("barnabas.cli.doctor:doctor", "Find out why a client cannot connect or is not served."),
        "top": ("barnabas.cli.top:top", "Brokers, topics and groups with their rates, in the terminal."),
        "metrics": (
            "barnabas.cli.metrics:metrics",
            "Dashboards and alert rules for Prometheus and Grafana.",
        ),
        "registry": ("barnabas.cli.registry:registry", "Run a schema registry."),
        "console": ("barnabas.cli.console:console", "Show a cluster live in the browser."),
        "cluster": (
            "barnabas.cli.cluster.commands:cluster",
            "Run several brokers as one cluster; kill and pause them.",
        ),
        "log": ("barnabas.cli.log.commands:log", "Read, check and repair a broker's files."),
        "ship": ("barnabas.cli.ship.command:ship", "Follow log files into a topic, each record once."),
        "pipeline": ("barnabas.cli.pipeline.commands:pipeline", "Run Spark pipelines and show their status."),
        "completion": ("barnabas.cli.completion:completion", "Tab completion for bash, zsh and fish."),
    },
    epilog=_EXAMPLES,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "auto_envvar_prefix": "BARNABAS",
        "max_content_width": 100,
    },
)
@click.version_option(barnabas.__version__, message="barnabas %(version)s")
def app() -> None:
    """Barnabas, an event streaming platform that speaks the Apache Kafka protocol."""
