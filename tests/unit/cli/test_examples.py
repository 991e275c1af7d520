"""The examples in help texts: each is a call that its command accepts."""

import shlex

import click
import pytest
from tests.unit.cli.commands import COMMANDS

from barnabas.cli.app import app


def examples():
    """Each call of barnabas in an example, without what it is piped to and read from."""
    for command in COMMANDS.values():
        for line in (command.epilog or "").splitlines():
            if not line.startswith("  ") or "barnabas " not in line:
                continue
            words = shlex.split(line.replace('"$(', "").replace(')"', ""))
            call = None
            for word in [*words, "|"]:
                if word == "barnabas":
                    call = []
                elif word in ("|", "<", ">"):
                    if call is not None:
                        yield pytest.param(call, id=" ".join(["barnabas", *call]))
                    call = None
                elif call is not None:
                    call.append(word)


def parse(command, context, words):
    """Parse a call as click does, down to the command that would run."""
    while isinstance(command, click.Group):
        name, command, words = command.resolve_command(context, words)
        if isinstance(command, click.Group):
            context = click.Context(command, info_name=name, parent=context)
        else:
            command.make_context(name, list(words), parent=context)


@pytest.mark.parametrize("call", [*examples()])
def test_an_example_is_a_call_that_its_command_accepts(monkeypatch, call):
    monkeypatch.setattr(click.Path, "convert", lambda kind, value, parameter, context: value)  # they exist
    if "in" in call:  # what follows are words: "in a second terminal"
        call = call[: call.index("in")]
    if "run" in call and "here" in call:
        call = call[: call.index("run")]
    parse(app, click.Context(app, info_name="barnabas", **app.context_settings), call)


def test_there_are_examples():
    assert len([*examples()]) > 50
