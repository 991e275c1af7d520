"""`barnabas consume --share`: records of a queue."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.integration.conftest import Wire, use_share_groups

from barnabas.cli.app import app
from barnabas.testing import BarnabasBroker


@pytest.fixture(scope="module")
def broker():
    with BarnabasBroker() as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        wire.close()
        broker.create_topic("jobs", 2)
        broker.admin().alter_configs("group", "workers", set={"share.auto.offset.reset": "earliest"})
        yield broker


def run(broker, *arguments, code=0):
    result = CliRunner().invoke(
        app, [*arguments], env={"BARNABAS_BOOTSTRAP_SERVER": broker.bootstrap_servers}, prog_name="barnabas"
    )
    assert result.exit_code == code, result.output
    return result.output


def test_records_that_were_printed_do_not_come_again(broker):
    broker.produce("jobs", *range(6))
    share = ("consume", "jobs", "--share", "workers")
    first = run(broker, *share, "--max-messages", "4").splitlines()
    rest = run(broker, *share, "--max-messages", "2", "--json").splitlines()
    assert sorted([*first, *(json.loads(line)["value"] for line in rest)]) == [str(n) for n in range(6)]
    assert run(broker, *share, "--timeout", "1") == ""


@pytest.mark.parametrize(
    "option", ["--group=g", "--partition=0", "--offset=0", "--since=1h", "--from-beginning", "--until-end"]
)
def test_a_share_group_decides_itself_where_it_reads(broker, option):
    output = run(broker, "consume", "jobs", "--share", "workers", option, code=2)
    assert "share.auto.offset.reset" in output


def test_matching_records_are_rejected_or_released_with_their_attempts(broker):
    broker.create_topic("tasks")
    broker.produce("tasks", "good", "bad", "busy")
    share = ("consume", "tasks", "--share", "workers", "--format", r"{value} {attempt}\n")
    printed = run(broker, *share, "--reject", "^bad", "--release", "^busy", "--max-messages", "7").split("\n")
    assert sorted(printed[:-1]) == ["bad 1", *(f"busy {attempt}" for attempt in range(1, 6)), "good 1"]
    assert run(broker, *share, "--timeout", "1") == ""


def test_records_are_rejected_only_by_members_of_a_share_group(broker):
    assert "add --share GROUP" in run(broker, "consume", "jobs", "--reject", "x", code=2)
    assert "not a regular expression" in run(
        broker, "consume", "jobs", "--share", "workers", "--reject", "(", code=2
    )
