"""Every command with each kind of wrong call, and without a broker.

The test finds the commands itself, so it also tests a new one. Each call must give one line on stderr, the
right exit code and no traceback. `make test` tries a sample with each command and each value, and `make
test-all` tries every combination.
"""

import itertools

import click
import pytest
from click.testing import CliRunner
from tests.slow import in_turn
from tests.unit.cli.commands import BY_FILE, LASTING, LEAVES, SENSIBLE, arguments, fill, options, value_of

from barnabas.base.errors import BarnabasError
from barnabas.cli.app import app

NOBODY = "127.0.0.1:1"
ABSURD = [
    "",
    " ",
    "nonsense",
    "-1",
    "nan",
    "1e999",
    "9" * 40,
    "a=b",
    "a,b",
    "\udcff",
    "é",
    "x" * 70_000,
    "../..",
]
BY_BROKER = [path for path in LEAVES if any(option.name == "bootstrap_server" for option in options(path))]


class Ran(BarnabasError):
    """Raised instead of running a command that would run for a long time."""


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """Change to a new working folder. Let commands that would run for a long time end at once."""

    def run(*arguments, **others):
        raise Ran("it runs")

    for name in (
        "broker.server.run.run",
        "cli.cluster.run.run",
        "console.server.run",
        "registry.server.run",
        "registry.server.claim",
        "pipelines.run.run_pipeline",
    ):
        monkeypatch.setattr(f"barnabas.{name}", run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("BARNABAS_BOOTSTRAP_SERVER", NOBODY)
    fill(tmp_path)
    return tmp_path


def call(words):
    """Run a call that must fail with one line. Return the exit code and stderr."""
    result = CliRunner().invoke(app, words, prog_name="barnabas")
    shown = [word[:80] for word in words]
    assert result.exception is None or isinstance(result.exception, SystemExit), (shown, result.exception)
    if result.exit_code:
        assert result.exit_code in (1, 2), shown
        assert result.stderr.startswith("Error: "), (shown, result.stderr)
        assert result.stderr.count("\n") == 1, (shown, result.stderr)
        assert len(result.stderr) > len("Error: \n") + 5, shown
    return result.exit_code, result.stderr


def test_what_is_said_of_commands_is_said_of_commands_that_exist():
    assert {*LASTING, *SENSIBLE} <= {*LEAVES}


def sample_of(values, path, count=1):
    """Return some of the values. Each command gets others."""
    return in_turn(values, [*LEAVES].index(path), count)


@pytest.mark.parametrize("path", [path for path in BY_BROKER if path not in LASTING | BY_FILE], ids=" ".join)
def test_a_broker_that_is_not_there_is_told_in_one_line(folder, unknown_names, path, is_whole):
    absent = [
        (NOBODY, "connection refused"),
        ("no-such-host.invalid:9092", "the name no-such-host.invalid does not resolve"),
        (f"{NOBODY},no-such-host.invalid:9092", "does not resolve"),
    ]
    for server, words in absent if is_whole else sample_of(absent, path):
        code, err = call([*arguments(path, folder), "--bootstrap-server", server])
        assert code == 1, server
        assert f"no broker answers at {server}" in err
        assert words in err


@pytest.mark.parametrize("path", BY_BROKER, ids=" ".join)
def test_an_address_that_is_none_is_wrong_usage(folder, path, is_whole):
    wrong = ["", "nonsense", "a:b", "a:0", "a:99999", ":9092", "a:1,", "http://a:1", "\udcff"]
    for server in wrong if is_whole else sample_of(wrong, path):
        code, err = call([*arguments(path, folder), "--bootstrap-server", server])
        assert code == 2, server
        assert "--bootstrap-server" in err


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_an_absurd_value_of_an_option_is_told_in_one_line(folder, path, is_whole):
    given = [option for option in options(path) if not option.is_flag]
    sample = zip(given, sample_of(ABSURD, path, len(given)), strict=True)
    for option, value in itertools.product(given, ABSURD) if is_whole else sample:
        call([*arguments(path, folder), f"{max(option.opts, key=len)}={value}"])


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_an_absurd_argument_is_told_in_one_line(folder, path, is_whole):
    words = [word for word in arguments(path, folder) if word not in SENSIBLE.get(path, [])]
    for value in ABSURD if is_whole else sample_of(ABSURD, path):
        call([*path, "--", value])
        call([*words, "--", value, value])


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_any_two_options_get_along_or_are_told_not_to(folder, path, is_whole):
    given = [
        [max(option.opts, key=len), *([] if option.is_flag else [value_of(option, folder)])]
        for option in options(path)
    ]
    for one, other in itertools.combinations(given, 2) if is_whole else itertools.pairwise(given):
        call([*arguments(path, folder), *one, *other])
        call([*path, *one, *other])


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_a_required_parameter_that_is_missing_is_wrong_usage(path):
    code, err = call([*path])
    if any(parameter.required for parameter in LEAVES[path].params):
        assert code == 2
        assert "Missing" in err


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_an_unknown_option_is_wrong_usage(path):
    code, err = call([*path, "--no-such-option"])
    assert code == 2
    assert f"barnabas {' '.join(path)} --help" in err


@pytest.mark.parametrize("path", LEAVES, ids=" ".join)
def test_numbers_have_bounds(path):
    unbounded = [
        option.name
        for option in options(path)
        if isinstance(option.type, click.types.IntParamType | click.types.FloatParamType)
        and (getattr(option.type, "min", None) is None)
    ]
    assert unbounded == []
