"""Finds every command, and makes valid arguments for it."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click

from barnabas.cli.app import app

Name = tuple[str, ...]


def walk(command: click.Command = app, path: Name = ()) -> Iterator[tuple[Name, click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, **app.context_settings)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*path, name))


COMMANDS = dict(walk())
LEAVES = {path: command for path, command in COMMANDS.items() if not isinstance(command, click.Group)}

#: Commands that run until they are stopped.
LASTING = {("start",), ("cluster", "start"), ("registry",), ("console",), ("pipeline", "run")}

#: Commands that say first what is wrong with their file, which may name the brokers.
BY_FILE = {("pipeline", "validate")}

#: What makes a call of a command mean something, where its required parameters alone do not.
SENSIBLE = {
    ("consume",): ["--until-end"],
    ("ship",): ["--once", "--state", "state"],
    ("topics", "create"): ["--if-not-exists"],
    ("topics", "delete"): ["--if-exists"],
    ("topics", "alter"): ["--config", "retention.ms=1000000"],
    ("topics", "reassign", "cancel"): ["--all"],
    ("topics", "reassign", "throttle"): ["1000000"],
    ("brokers", "drain"): ["--dry-run"],
    ("features", "upgrade"): ["share.version=2"],
    ("features", "downgrade"): ["share.version=2"],
    ("groups", "reset-offsets"): ["--all-topics", "--to-earliest", "--execute"],
    ("acls", "grant"): ["--topic", "t"],
    ("acls", "deny"): ["--topic", "t"],
    ("acls", "check"): ["--topic", "t"],
    ("quotas", "list"): ["--json"],  # there may be none yet, and later there are
    ("quotas", "set"): ["--of-user", "ann", "producer_byte_rate=1000000"],
    ("top",): ["--once"],
    ("tls", "init"): ["--folder", "t"],
    ("users", "add"): ["--password-file", "a.log"],
    ("configs", "describe"): ["--topic", "t"],
    ("configs", "alter"): ["--topic", "t", "--set", "retention.ms=1000000"],
}


def arguments(path: Name, folder: Path) -> list[str]:
    """Return a call of the command: its required parameters, and those in `SENSIBLE`."""
    words = [*path]
    for parameter in LEAVES[path].params:
        if parameter.required:
            if isinstance(parameter, click.Option):
                words.append(parameter.opts[0])
            words.append(value_of(parameter, folder))
    return words + SENSIBLE.get(path, [])


def value_of(parameter: click.Parameter, folder: Path) -> str:
    """Return a valid value for a parameter. Files and folders are in `folder` (`fill`)."""
    kind = parameter.type
    if isinstance(kind, click.Choice):
        return str(next(iter(kind.choices)))
    if isinstance(kind, click.Path | click.File):
        if parameter.name == "plan":
            return str(folder / "plan.json")
        if parameter.name == "paths":
            return str(folder / "t-0")
        if parameter.name == "directories":
            return str(stopped_brokers_data(folder / "data"))
        wants_folder = isinstance(kind, click.Path) and not kind.file_okay
        return str(
            folder / ("state" if wants_folder else "shop.sql" if parameter.name == "file" else "a.log")
        )
    if isinstance(kind, click.IntRange | click.types.IntParamType) or kind.name == "number":
        return "1"
    if parameter.metavar and "NAME=VALUE" in parameter.metavar:
        return "name=value"
    if parameter.name in ("operation", "operations"):
        return "read"
    if kind.name == "servers":
        return "127.0.0.1:1"
    return "t"


def calls_in(line: str) -> Iterator[list[str]]:
    """Yield the words of each call of `barnabas` in a shell line, without pipes and redirections."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
    words.whitespace_split = True
    call: list[str] | None = None
    before = "|"
    for word in [*words, "|"]:
        if word == "barnabas" and (set(before) <= set("|;&") or before in ("eval", "do", "until", "while")):
            call = []
        elif set(word) <= set("|<>;&"):
            if call is not None:
                yield call
            call = None
        elif call is not None:
            call.append(word)
        before = word


def parse(words: list[str]) -> None:
    """Parse a call as click does, up to the command that would run.

    Raises:
        click.UsageError: the call is not valid.
    """
    command: click.Command | None = app
    context = click.Context(app, info_name="barnabas", **app.context_settings)
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
        elif command is not None:
            command.make_context(name, list(words), parent=context)


def fill(folder: Path) -> None:
    """Create the files that the calls name."""
    (folder / "a.log").write_text("a line\n")
    (folder / "shop.sql").write_text("")
    (folder / "plan.json").write_text('{"partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}')
    (folder / "t-0").mkdir()
    (folder / "t-0" / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")


def stopped_brokers_data(folder: Path) -> Path:
    """Create a log directory with a damaged file. Each command gets a new one,
    because it may repair the file.
    """
    shutil.rmtree(folder, ignore_errors=True)
    partition = folder / "t-0"
    partition.mkdir(parents=True)
    (partition / "leader-epoch-checkpoint").write_text("not a checkpoint\n")
    return folder


def options(path: Name) -> Iterator[click.Option]:
    """Yield the options of a command, without --help."""
    for parameter in LEAVES[path].params:
        if isinstance(parameter, click.Option):
            yield parameter
