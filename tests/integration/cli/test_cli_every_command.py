"""Runs every command with standard streams that are closed, full, or without a reader.

It finds the commands itself, so it also tests a new one.
"""

import itertools
import uuid

import click
import pytest
from confluent_kafka import Producer
from tests.integration.cli.forking import Forking
from tests.unit.cli.commands import LASTING, LEAVES, arguments, fill, options

from barnabas.base.types import TopicPartition
from barnabas.cli.cluster.control import ControlServer
from barnabas.cli.cluster.folder import ClusterFolder

ENDING = [path for path in LEAVES if path not in LASTING]


def new_name():
    """Return a new name of a topic or a group. It does not end at random: TOPIC-NUMBER names a partition."""
    return f"every-{uuid.uuid4().hex[:12]}-name"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("calls")
    fill(path)
    control = ControlServer(ClusterFolder(path / "barnabas-cluster"), agree)
    control.start()
    yield path
    control.stop()


def agree(command):
    """Return an admin client of a cluster that accepts every request."""
    command.answer(zookeeper="127.0.0.1:1", zookeeper_process=None, brokers=[])


@pytest.fixture(scope="module")
def found(barnabas_broker):
    """Create objects for each list, so that no list is empty."""
    admin = barnabas_broker.admin()
    admin.set_password("every-user", "secret")
    topic = new_name()
    admin.create_topic(topic)
    admin.set_group_offsets("every-group", {TopicPartition(topic, 0): 0})
    settings = {"bootstrap.servers": barnabas_broker.bootstrap_servers, "transactional.id": "every-id"}
    Producer(settings).init_transactions(60)


@pytest.fixture(scope="module")
def run(barnabas_broker, folder, found):
    with Forking(folder, {"BARNABAS_BOOTSTRAP_SERVER": barnabas_broker.bootstrap_servers}) as run:
        yield run


@pytest.fixture
def words(barnabas_broker, folder):
    """Return arguments for the command that name existing objects: a topic with records, and a group that has
    read them.
    """

    def make(path):
        admin = barnabas_broker.admin()
        name = new_name()
        admin.create_topic(name)
        barnabas_broker.produce(name, "a", "b")
        admin.set_group_offsets(name, {TopicPartition(name, 0): 2})
        return [name if word == "t" else word for word in arguments(path, folder)]

    return make


@pytest.fixture(scope="module")
def usual():
    """Return the outcome of each command with normal streams, by its name."""
    return {}


@pytest.fixture
def expect(usual, run, words):
    def ask(path):
        if path not in usual:
            usual[path] = run(*words(path))
        return usual[path]

    return ask


@pytest.mark.parametrize("path", ENDING, ids=" ".join)
def test_a_command_ends_well_or_says_why_in_one_line(expect, path):
    ended = expect(path)
    assert ended.code in (0, 1, 2), ended
    if ended.code:
        assert ended.err.startswith("Error: ")
        assert ended.err.count("\n") == 1, ended


def test_most_calls_succeed_or_the_others_would_try_nothing(expect):
    codes = {path: expect(path).code for path in ENDING}
    assert [*codes.values()].count(0) >= 0.6 * len(codes), codes


@pytest.mark.parametrize("path", ENDING, ids=" ".join)
def test_a_reader_of_stdout_that_has_gone_changes_nothing(run, words, expect, path):
    expected = expect(path)
    ended = run(*words(path), stdout="gone")
    assert ended.code == expected.code, ended
    assert ended.err.count("\n") == expected.err.count("\n"), ended


@pytest.mark.parametrize("stdout", ["gone", "full"])
def test_a_repair_is_finished_though_its_steps_cannot_be_printed(run, words, folder, stdout):
    run(*words(("log", "repair")), stdout=stdout)
    ended = run("log", "repair", "--dry-run", str(folder / "data"))
    assert (ended.code, ended.out) == (0, "nothing to repair\n")


@pytest.mark.parametrize("path", ENDING, ids=" ".join)
def test_a_full_disk_below_stdout_is_told_in_one_line(run, words, expect, path):
    expected = expect(path)
    ended = run(*words(path), stdout="full")
    if expected.code == 0 and expected.out:
        assert (ended.code, ended.err.splitlines()[-1]) == (1, "Error: stdout: No space left on device")
    else:
        assert ended.code == expected.code


@pytest.mark.parametrize("path", ENDING, ids=" ".join)
@pytest.mark.parametrize("closed", [(0,), (1,), (0, 1, 2)], ids=str)
def test_closed_streams_are_told_in_one_line(run, words, expect, path, closed):
    expected = expect(path)
    ended = run(*words(path), closed=closed)
    if 1 in closed and expected.code == 0 and expected.out:
        assert ended.code == 1, ended
    else:
        assert ended.code in (expected.code, 1), ended
    if 2 not in closed and ended.code:
        assert ended.err.splitlines()[-1].startswith("Error: "), ended
    assert "Traceback" not in ended.err


@pytest.mark.parametrize("path", ENDING, ids=" ".join)
def test_absurd_values_that_reach_the_broker_are_told_in_one_line(run, words, path):
    call = words(path)
    for option, value in itertools.product(options(path), ["-1", "é", "x" * 3000]):
        if option.is_flag or option.name == "bootstrap_server" or isinstance(option.type, click.Choice):
            continue
        ended = run(*call, f"{max(option.opts, key=len)}={value}")
        assert ended.code in (0, 1, 2), (option.name, value[:40], ended)
        if ended.code:
            assert ended.err.splitlines()[-1].startswith("Error: "), (option.name, value[:40], ended)
        assert "Traceback" not in ended.err, (option.name, value[:40], ended)
