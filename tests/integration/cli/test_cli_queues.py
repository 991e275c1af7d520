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
