"""Apache Kafka's tools for share groups: groups, the console consumer, the verifiable consumer, settings."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.compat.conftest import CONFIGS
from tests.integration.conftest import Wire

from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
PATIENCE = 60.0


@pytest.fixture
def wire(broker: Any) -> Iterator[Wire]:
    wire = Wire(broker.bootstrap)
    wire(FindCoordinatorRequest(coordinator_keys=["any"]))  # makes the topic of the groups
    yield wire
    wire.close()


@pytest.fixture
def tool(java: Any, broker: Any, wire: Wire) -> Callable[..., str]:
    """Run a tool with --bootstrap-server."""

    def run(main: str, *arguments: str, stdin: str = "") -> str:
        return java.run(main, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)

    return run


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a table whose first line has the names of its columns."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    head = next(index for index, line in enumerate(lines) if "GROUP" in line)
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :]]


def read_places(broker: Any, places: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the rows of partitions that the group has begun to read.

    Kafka has no start offset, and no lag, until the first acknowledgement in a partition.
    """
    if broker.name != "kafka":
        return places
    return [row for row in places if row["START-OFFSET"] != "-"]


def join(wire: Wire, group: str, topic: str, partitions: int) -> None:
    """Join as the member `m`, until it has `partitions` partitions."""
    epoch, deadline = 0, time.monotonic() + PATIENCE
    while True:
        assert time.monotonic() < deadline
        answer = wire(
            ShareGroupHeartbeatRequest(
                group_id=group, member_id="m", member_epoch=epoch, subscribed_topic_names=[topic]
            )
        )
        if answer.error_code:  # the coordinator has just begun
            continue
        epoch = answer.member_epoch
        if sum(len(each.partitions) for each in answer.assignment.topic_partitions) == partitions:
            return


def leave(wire: Wire, group: str) -> None:
    wire(ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-1))


def test_kafka_share_groups_lists_and_describes_a_group_with_a_member(tool, topic, wire):
    name, group = topic(partitions=2), f"g-{uuid.uuid4()}"

    def ask(*words: str) -> str:
        join(wire, group, name, 2)  # on a busy machine, a session can end while a few tools start
        return tool(GROUPS, *words)

    assert group in ask("--list").splitlines()
    assert group in ask("--list", "--state", "stable")
    (state,) = rows(ask("--describe", "--group", group, "--state", "--verbose"))
    assert (state["STATE"], state["#MEMBERS"]) == ("Stable", "1")
    assert state["GROUP-EPOCH"] == state["ASSIGNMENT-EPOCH"]
    (member,) = rows(ask("--describe", "--group", group, "--members"))
    assert (member["CONSUMER-ID"], member["HOST"], member["#PARTITIONS"]) == ("m", "/127.0.0.1", "2")
    assert f"{name}:0,1" in member.values()
    places = rows(ask("--describe", "--group", group))
    assert [(row["TOPIC"], row["PARTITION"]) for row in places] == [(name, "0"), (name, "1")]
    assert "GroupNotEmptyException" in ask("--delete", "--group", group)
    leave(wire, group)


def test_kafka_share_groups_resets_and_deletes_offsets_and_groups(tool, topic, wire):
    name, group = topic(partitions=1), f"g-{uuid.uuid4()}"
    tool(PRODUCER, "--topic", name, stdin="".join(f"{i}\n" for i in range(50)))
    join(wire, group, name, 1)
    leave(wire, group)
    reset = ("--group", group, "--reset-offsets", "--topic", name)
    tool(GROUPS, *reset, "--to-latest", "--execute")
    (place,) = rows(tool(GROUPS, "--describe", "--group", group))
    assert place["START-OFFSET"] == "50"
    tool(GROUPS, *reset, "--to-earliest", "--execute")
    (place,) = rows(tool(GROUPS, "--describe", "--group", group))
    assert place["START-OFFSET"] == "0"
    assert "Successful" in tool(GROUPS, "--group", group, "--delete-offsets", "--topic", name)
    assert name not in tool(GROUPS, "--describe", "--group", group)
    assert "successful" in tool(GROUPS, "--delete", "--group", group)
    assert group not in tool(GROUPS, "--list").splitlines()


def test_console_share_consumers_share_a_topic_and_the_tool_shows_their_lag(java, broker, tool, topic, wire):
    name, group = topic(partitions=2), f"g-{uuid.uuid4()}"
    whose = ("--entity-type", "groups", "--entity-name", group)
    tool(CONFIGS, "--alter", *whose, "--add-config", "share.auto.offset.reset=earliest")
    assert "share.auto.offset.reset=earliest" in tool(CONFIGS, "--describe", *whose)
    tool(PRODUCER, "--topic", name, stdin="".join(f"{i}\n" for i in range(50)))
    consume = ("--bootstrap-server", broker.bootstrap, "--topic", name, "--group", group)
    first, second = (java.start(CONSUMER, *consume, "--timeout-ms", "15000") for _ in range(2))
    outputs = [process.communicate(timeout=PATIENCE)[0] for process in (first, second)]
    assert sorted(int(line) for out in outputs for line in out.split()) == list(range(50))
    places = read_places(broker, rows(tool(GROUPS, "--describe", "--group", group)))
    assert {row["LAG"] for row in places} == {"0"}
    is_kafka = broker.name == "kafka"  # the new record may be in a partition that the group has not begun
    assert is_kafka or sum(int(row["START-OFFSET"]) for row in places) == 50
    tool(PRODUCER, "--topic", name, stdin="more\n")
    places = rows(tool(GROUPS, "--describe", "--group", group))
    assert is_kafka or sum(int(row["LAG"]) for row in places) == 1
    consumed = tool(
        CONSUMER, "--topic", name, "--group", group, "--max-messages", "1", "--timeout-ms", "15000"
    )
    assert consumed.split() == ["more"]


@pytest.mark.parametrize("mode", ["auto", "sync", "async"])
def test_verifiable_share_consumer_acknowledges_every_record_in_each_mode(broker, tool, topic, mode):
    name, group = topic(partitions=2), f"g-{uuid.uuid4()}"
    tool(PRODUCER, "--topic", name, stdin="".join(f"{i}\n" for i in range(50)))
    output = tool(
        *("org.apache.kafka.tools.VerifiableShareConsumer", "--topic", name, "--group-id", group),
        *("--max-messages", "50", "--acknowledgement-mode", mode, "--offset-reset-strategy", "earliest"),
    )
    events = [json.loads(line) for line in output.splitlines()]
    counts = {
        kind: sum(event["count"] for event in events if event["name"] == kind)
        for kind in ("records_consumed", "offsets_acknowledged")
    }
    assert counts == {"records_consumed": 50, "offsets_acknowledged": 50}
    assert all(event["success"] for event in events if event["name"] == "offsets_acknowledged")
    places = read_places(broker, rows(tool(GROUPS, "--describe", "--group", group)))
    assert {row["LAG"] for row in places} == {"0"}


def test_kafka_share_groups_shows_the_lag_behind_a_start_offset_that_was_reset(tool, topic):
    name, group = topic(), f"g-{uuid.uuid4()}"
    tool(PRODUCER, "--topic", name, stdin="".join(f"{i}\n" for i in range(5)))
    tool(GROUPS, "--reset-offsets", "--group", group, "--topic", name, "--to-earliest", "--execute")
    (place,) = rows(tool(GROUPS, "--describe", "--group", group))
    assert (place["START-OFFSET"], place["LAG"]) == ("0", "5")
