"""The help text of every command, and the modules that it loads."""

import subprocess
import sys

import click
import pytest
from click.testing import CliRunner
from tests.unit.cli.commands import COMMANDS, LEAVES

from barnabas.cli.app import app


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_command_explains_itself(path):
    result = CliRunner().invoke(app, [*path, "--help"], prog_name="barnabas")
    assert result.exit_code == 0
    assert result.output.startswith(" ".join(["Usage: barnabas", *path]))


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_command_teaches_by_example(path):
    examples = [line.strip() for line in (LEAVES[path].epilog or "").splitlines() if "barnabas " in line]
    assert any(" ".join(["barnabas", *path]) in example for example in examples)


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_every_option_is_explained(path):
    options = [parameter for parameter in LEAVES[path].params if isinstance(parameter, click.Option)]
    assert [option.name for option in options if not option.help] == []


def test_the_summaries_in_the_root_name_every_command():
    assert [path[0] for path in COMMANDS if len(path) == 1] == app.list_commands(
        click.Context(app, **app.context_settings)
    )


def test_the_version_is_printed():
    assert CliRunner().invoke(app, ["--version"]).output.startswith("barnabas 0.")


@pytest.mark.parametrize("arguments", [["--help"], ["start", "--help"], ["log", "dump", "--help"]])
def test_help_loads_neither_a_kafka_client_nor_rich(arguments):
    code = (
        f"import sys; sys.argv = ['barnabas', *{arguments!r}]\n"
        "from barnabas.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print(sorted({'rich', 'confluent_kafka', 'uvloop', 'asyncio', 'sqlite3'} & set(sys.modules)))"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout.splitlines()[-1] == "[]"


def test_commands_that_only_administer_load_no_librdkafka():
    code = "import sys, barnabas.client.admin, barnabas.cli.topics; print('confluent_kafka' in sys.modules)"
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert outcome.stdout == "False\n"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_are_printed(shell):
    result = CliRunner().invoke(app, ["completion", shell], prog_name="barnabas")
    assert result.exit_code == 0
    assert "_BARNABAS_COMPLETE" in result.output


def complete(monkeypatch, words):
    monkeypatch.setenv("_BARNABAS_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    with pytest.raises(SystemExit):
        app.main(prog_name="barnabas")


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        ("barnabas to", ["topics", "tokens", "top"]),
        ("barnabas topics de", ["delete", "describe"]),
        ("barnabas consume --un", ["--until-end"]),
        ("barnabas topics create t --config retention.m", ["retention.ms="]),
        ("barnabas configs alter --topic t --set retention.m", ["retention.ms="]),
        ("barnabas configs alter --broker 1 --set num.parti", ["num.partitions="]),
        ("barnabas start --set num.parti", ["num.partitions="]),
    ],
)
def test_words_are_completed(monkeypatch, capsys, words, offered):
    complete(monkeypatch, words)
    assert [line.partition(",")[2] for line in capsys.readouterr().out.splitlines()] == offered


def test_completing_names_without_a_broker_offers_nothing_and_does_not_fail(monkeypatch, capsys):
    complete(monkeypatch, "barnabas consume --bootstrap-server 127.0.0.1:1 or")
    assert capsys.readouterr().out.strip() == ""
