"""`barnabas groups` and share groups."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.conftest import Wire, use_share_groups

from barnabas.client import Worker
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.testing import BarnabasBroker

PATIENCE = 60.0


@pytest.fixture(scope="module")
def barnabas_broker() -> Iterator[BarnabasBroker]:
    """Start a broker with share groups. It replaces the broker that tests share."""
    with BarnabasBroker() as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        wire(FindCoordinatorRequest(coordinator_keys=["any"]))  # makes the topic of the groups
        yield broker
        wire.close()


@pytest.fixture
def wire(barnabas_broker: BarnabasBroker) -> Iterator[Wire]:
    wire = Wire(barnabas_broker.bootstrap_servers)
    yield wire
    wire.close()


def beat(wire: Wire, group: str, epoch: int, *topics: str) -> Any:
    return wire(
        ShareGroupHeartbeatRequest(
            group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=list(topics) or None
        ),
        client_id="the-reader",
    )


@pytest.fixture
def group(barnabas: Any, barnabas_broker: BarnabasBroker, wire: Wire) -> str:
    """Create a share group with one member, which has both partitions of the topic
    `t`. Return the group's id.
    """
    name = f"sharers-{time.monotonic_ns()}"
    if "t" not in barnabas("topics", "list").out.split():
        barnabas("topics", "create", "t", "--partitions", 2)
        barnabas_broker.produce("t", *"abcd")
    epoch, deadline = 0, time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline
        answer = beat(wire, name, epoch, "t")
        if answer.error_code:
            time.sleep(0.05)  # the coordinator has just begun
            continue
        epoch = answer.member_epoch
        if sum(len(topic.partitions) for topic in answer.assignment.topic_partitions) == 2:
            return name


def test_a_share_group_is_listed_and_described_with_its_members(barnabas, group):
    assert {"group": group, "type": "share", "state": "Stable"} in barnabas("groups", "list", "--json").json()
    assert group in barnabas("groups", "list", "--type", "share").out
    assert group not in barnabas("groups", "list", "--type", "consumer").out
    described = barnabas("groups", "describe", group, "--json").json()
    assert (described["type"], described["state"], described["assignor"]) == ("share", "Stable", "simple")
    assert described["epoch"] == described["target_epoch"]
    unknown = dict.fromkeys(("start", "lag", "in_flight", "locked", "waiting", "deliveries", "unlocks_ms"))
    assert described["partitions"] == [
        {"topic": "t", "partition": number, "members": ["m"], **unknown} for number in (0, 1)
    ]
    [member] = described["members"]
    assert (member["client"], member["protocol"], member["epoch"]) == (
        "the-reader",
        "share",
        described["epoch"],
    )
    assert [place["partition"] for place in member["partitions"]] == [0, 1]
    members = barnabas("groups", "describe", group, "--members").out
    assert "the-reader" in members and "t:0,1" in members
    table = barnabas("groups", "describe", group).lines
    assert " ".join(table[1].split()) == "TOPIC PARTITION START LAG MEMBERS LOCKED WAITING DELIVERIES UNLOCKS"
    assert table[2].split() == ["t", "0", "-", "-", "1", *"----"]


def test_the_records_in_flight_are_described(barnabas, barnabas_broker):
    barnabas("topics", "create", "flying")
    barnabas_broker.produce("flying", *"abc")
    barnabas_broker.admin().alter_configs("group", "flying", set={"share.auto.offset.reset": "earliest"})
    with Worker(barnabas_broker.bootstrap_servers, "flying", group="flying") as worker:
        (job,) = worker.take(1, PATIENCE)
        (partition,) = barnabas("groups", "describe", "flying", "--json").json()["partitions"]
        assert (partition["start"], partition["locked"], partition["waiting"]) == (0, 3, 0)
        assert partition["deliveries"] == 1 and 0 < partition["unlocks_ms"] <= 30_000
        assert [batch["member"] for batch in partition["in_flight"]] == partition["members"]
        while job.attempt == 1:
            job.release()
            (job,) = worker.take(1, PATIENCE)
        row = barnabas("groups", "describe", "flying").lines[2].split()
        assert row[4] == "1" and row[7] == "2" and row[9] == "s"


def test_start_offsets_are_reset_when_the_members_have_gone(barnabas, group, wire):
    reset = ("groups", "reset-offsets", group, "--topic", "t", "--to-earliest")
    refused = barnabas(*reset, "--execute", code=1)
    assert "the-reader" in refused.err
    beat(wire, group, -1)
    shown = barnabas(*reset, "--json").json()
    assert not shown["executed"]
    assert [each["new"] for each in shown["offsets"]] == [0, 0]
    barnabas(*reset, "--execute")
    places = barnabas("groups", "describe", group, "--json").json()["partitions"]
    assert [place["start"] for place in places] == [0, 0]
    barnabas("groups", "reset-offsets", group, "--all-topics", "--shift-by", "1", "--execute")
    places = barnabas("groups", "describe", group, "--json").json()["partitions"]
    assert sum(place["start"] for place in places) in (1, 2)  # one of the partitions may be empty


def test_a_share_group_without_members_is_deleted(barnabas, group, wire):
    assert "NON_EMPTY_GROUP" in barnabas("groups", "delete", group, code=1).err
    beat(wire, group, -1)
    barnabas("groups", "delete", group)
    assert group not in barnabas("groups", "list").out
