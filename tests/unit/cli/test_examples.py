"""The examples in help texts: their commands accept each of them."""

import click
import pytest
from tests.unit.cli.commands import COMMANDS, calls_in, parse


def examples():
    """Yield each call of barnabas in an example, without pipes and redirections."""
    for command in COMMANDS.values():
        for line in (command.epilog or "").splitlines():
            if not line.startswith("  ") or "barnabas " not in line:
                continue
            for call in calls_in(line.replace('"$(', "").replace(')"', "")):
                yield pytest.param(call, id=" ".join(["barnabas", *call]))


@pytest.mark.parametrize("call", [*examples()])
def test_an_example_is_a_call_that_its_command_accepts(monkeypatch, call):
    monkeypatch.setattr(click.Path, "convert", lambda kind, value, parameter, context: value)  # they exist
    monkeypatch.setattr("barnabas.cli.client_config.read_servers", lambda *given, **more: "127.0.0.1:9092")
    if "in" in call:  # what follows are words: "in a second terminal"
        call = call[: call.index("in")]
    if "run" in call and "here" in call:
        call = call[: call.index("run")]
    parse(call)


def test_there_are_examples():
    assert len([*examples()]) > 50
