"""`barnabas brokers`, `barnabas topics reassign` and `barnabas topics elect` against one broker."""

import json

import pytest
from click.testing import CliRunner

from barnabas.cli.app import app
from barnabas.testing import BarnabasBroker


@pytest.fixture
def plan(tmp_path):
    """Write a plan to a file. A plan that is a text is written unchanged."""

    def write(*moves):
        path = tmp_path / "plan.json"
        items = [{"topic": t, "partition": p, "replicas": r} for t, p, r in moves]
        path.write_text(json.dumps({"version": 1, "partitions": items}))
        return path

    return write


def test_the_broker_is_listed_and_described(barnabas, barnabas_broker, barnabas_topic):
    [listed] = barnabas("brokers", "list", "--json").json()
    address = f"{listed['host']}:{listed['port']}"
    assert address == barnabas_broker.bootstrap_servers
    assert (listed["broker"], listed["controller"], listed["out_of_sync"]) == (1, True, 0)
    assert listed["leaders"] == listed["replicas"] > 0
    assert address in barnabas("brokers", "list").lines[1]
    described = barnabas("brokers", "describe", 1, "--json").json()
    assert f"{barnabas_topic}-0" in described["leads"]
    assert described["follows"] == described["out_of_sync"] == []
    [directory] = described["log_dirs"]
    assert (directory["error"], directory["replicas"]) == (None, len(described["leads"]))
    assert barnabas("brokers", "describe", 1).lines[0] == f"broker 1 at {address}, the controller"


def test_a_broker_that_is_not_there_is_told(barnabas):
    assert "its brokers are 1" in barnabas("brokers", "describe", 7, code=1).err
    assert "its brokers are 1" in barnabas("brokers", "drain", 7, code=1).err


def test_the_only_broker_cannot_be_drained(barnabas, barnabas_topic):
    assert "0 brokers" in barnabas("brokers", "drain", 1, code=1).err


def test_where_all_is_well_a_plan_is_empty_and_says_so(barnabas, barnabas_topic):
    planned = barnabas("topics", "reassign", "plan", barnabas_topic)
    assert planned.json() == {"version": 1, "partitions": []}
    assert planned.err == "0 of 1 partitions change, 0 replicas are to be copied\n"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["no-such-topic"], "there is no topic no-such-topic"),
        (["--brokers", "1,2"], "broker 2 is not in the cluster; its brokers are 1"),
        (["--replication-factor", "2"], "there are 1 brokers for them"),
    ],
)
def test_a_plan_that_cannot_be_made_is_refused(barnabas, barnabas_topic, arguments, words):
    assert words in barnabas("topics", "reassign", "plan", *arguments, code=1).err


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"partitions": [{"topic": "t"}]}', '{"partitions": []}'])
def test_a_file_that_is_no_plan_is_refused(barnabas, tmp_path, text):
    path = tmp_path / "plan.json"
    path.write_text(text)
    for command in ("execute", "verify", "cancel"):
        assert "plan.json" in barnabas("topics", "reassign", command, path, code=1).err


def test_what_is_where_it_should_be_is_verified(barnabas, barnabas_topic, plan):
    path = plan((barnabas_topic, 0, [1]))
    barnabas("topics", "reassign", "execute", path, "--throttle", 1000, "--wait")
    assert barnabas("topics", "reassign", "list", "--json").json() == []
    verified = barnabas("topics", "reassign", "verify", path, "--json").json()
    assert verified == [{"topic": barnabas_topic, "partition": 0, "state": "moved"}]
    with path.open() as text:
        assert "moved" in barnabas("topics", "reassign", "verify", "-", stdin=text.read()).lines[1]


def test_what_is_elsewhere_is_told_by_the_exit_code(barnabas, barnabas_topic, plan):
    path = plan((barnabas_topic, 0, [2]))
    assert "elsewhere" in barnabas("topics", "reassign", "verify", path, code=1).lines[1]


def test_a_move_that_is_refused_is_told(barnabas, barnabas_topic, plan):
    path = plan((barnabas_topic, 0, [2]), (barnabas_topic, 1, [1]))
    told = barnabas("topics", "reassign", "execute", path, code=1).err
    assert "2 partitions could not be moved" in told
    assert "names broker 2, which is not in the cluster" in told


def test_throttles_are_set_and_lifted(barnabas, barnabas_topic, barnabas_broker):
    def rate():
        values = {value.name: value.value for value in barnabas_broker.admin().configs("broker", "1")}
        return values["leader.replication.throttled.rate"]

    barnabas("topics", "reassign", "throttle", 5000)
    assert rate() == "5000"
    barnabas("topics", "reassign", "throttle", "--remove")
    assert rate() == str(2**63 - 1)  # not what it was before: tests that share the broker throttle, too


def test_nothing_is_cancelled_where_nothing_moves(barnabas, barnabas_topic, plan):
    assert barnabas("topics", "reassign", "cancel", "--all").out == "no partition is moving\n"
    assert (
        "no partition is moving"
        in barnabas("topics", "reassign", "cancel", plan((barnabas_topic, 0, [1]))).out
    )
    assert "--all" in barnabas("topics", "reassign", "cancel", code=2).err


def test_leaders_stay_where_they_are_preferred(barnabas, barnabas_topic):
    assert barnabas("topics", "elect").out == "every leader stays\n"
    assert barnabas("topics", "elect", f"{barnabas_topic}:0").out == "every leader stays\n"
    assert "there is no partition" in barnabas("topics", "elect", f"{barnabas_topic}:7", code=1).err
    assert "there is no topic" in barnabas("topics", "elect", "no-such-topic", code=1).err
    assert "loses records" in barnabas("topics", "elect", "--unclean", code=2).err
    assert "write NAME" in barnabas("topics", "elect", "t:x", code=2).err


def test_filters_find_what_is_amiss(barnabas, barnabas_topic):
    for option in ("--under-replicated", "--unavailable-partitions", "--under-min-isr"):
        assert barnabas("topics", "describe", option).out == ""
    assert f"topic {barnabas_topic}: " in barnabas("topics", "describe", "--at-min-isr-partitions").out


def test_replicas_move_to_the_log_directories_of_a_plan(tmp_path):
    paths = [str(tmp_path / name) for name in "ab"]
    with BarnabasBroker(data=",".join(paths)) as broker:
        broker.create_topic("t", 2)
        broker.produce("t", "x", "y")

        def run(*arguments, code=0):
            path = tmp_path / "plan.json"
            path.write_text(json.dumps({"version": 1, "partitions": items}))
            called = CliRunner().invoke(
                app,
                ["topics", "reassign", *arguments, str(path), "--bootstrap-server", broker.bootstrap_servers],
            )
            assert called.exit_code == code, called.output
            return called.output

        items = [
            {"topic": "t", "partition": number, "replicas": [1], "log_dirs": [paths[1]]} for number in (0, 1)
        ]
        assert "elsewhere" in run("verify", code=1)
        run("execute", "--wait")
        assert "elsewhere" not in run("verify")
        assert sorted(entry.name for entry in (tmp_path / "b").glob("t-*")) == ["t-0", "t-1"]
        items = [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": ["any"]}]
        run("verify")
        for wrong, words in (
            (["/none"], "no such log directory"),
            (["b"], "absolute"),
            ([], "for each replica"),
        ):
            items = [{"topic": "t", "partition": 0, "replicas": [1], "log_dirs": wrong}]
            assert words in run("execute", code=1)
