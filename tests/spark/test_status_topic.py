"""A pipeline's status in a topic: its records, and a writer with errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from barnabas.base.errors import BarnabasError
from barnabas.cli.app import app
from barnabas.pipelines.status import PartitionLag, PipelineStatus, QueryStatus
from barnabas.pipelines.status_topic import MAX_PARTITIONS, StatusTopic, from_value, read_statuses, to_value


def status(name: str = "shop", state: str = "running", age_s: float = 0) -> PipelineStatus:
    at = (datetime.now(UTC) - timedelta(seconds=age_s)).isoformat(timespec="seconds")
    query = QueryStatus("out", "running", lag=4, partitions=[PartitionLag("t", 0, 5, 9, 4)])
    return PipelineStatus(name, "shop.py", "local[1]", 1, state, at, at, [query], "here", ["out is late"])


def test_a_status_comes_back_from_a_record() -> None:
    written = status()
    assert from_value(to_value(written)) == written


def test_fields_of_a_later_version_are_ignored() -> None:
    written = status()
    found = json.loads(to_value(written))
    found["queries"][0]["moon"] = "full"
    assert from_value(json.dumps({**found, "weather": "fine"}).encode()) == written


@pytest.mark.parametrize("value", [b"", b"\xff", b"[]", b"{}", b'{"queries": [7]}', b'"text"'])
def test_what_is_no_status_is_refused(value: bytes) -> None:
    with pytest.raises(ValueError, match="it is not the status of a pipeline"):
        from_value(value)


def test_a_pipeline_that_should_run_and_writes_no_more_is_silent() -> None:
    assert from_value(to_value(status(age_s=60))).state == "silent"
    assert from_value(to_value(status(state="done", age_s=60))).state == "done"


def test_a_record_lists_the_partitions_with_the_most_lag() -> None:
    large = status()
    large.queries[0].partitions = [PartitionLag("t", number, 0, number, number) for number in range(10_000)]
    value = to_value(large)
    assert len(value) < 20_000
    listed = from_value(value).queries[0].partitions
    assert [each.partition for each in listed] == list(range(10_000 - MAX_PARTITIONS, 10_000))


def test_statuses_are_read_by_name_and_a_reset_pipeline_is_gone(
    servers: str, admin: AdminClient, make_topic: Callable[..., str], feed: Any
) -> None:
    topic = f"statuses-{make_topic()}"  # which the writer makes
    said: list[str] = []
    client = {"bootstrap.servers": servers}
    for name, states in {"shop": ("running", "done"), "bank": ("running",), "old": ("running",)}.items():
        writer = StatusTopic(topic, client, said.append)
        for state in states:
            writer.publish(status(name, state))
            writer.publish(status(name, state))  # nothing is new
        if name == "old":
            writer.forget(name)
        writer.close()
    feed.send(topic, key=b"noise", value=b"no status")
    assert [(each.pipeline, each.state) for each in read_statuses(topic, client)] == [
        ("bank", "running"),
        ("shop", "done"),
    ]
    assert said == []
    resource = ConfigResource(ResourceType.TOPIC, topic)
    settings = admin.describe_configs([resource])[resource].result(60)
    assert settings["cleanup.policy"].value == "compact"

    command = ["pipeline", "list", "--topic", topic, "--bootstrap-server", servers]
    listed = CliRunner().invoke(app, command, prog_name="barnabas")
    assert [line.split()[:6] for line in listed.stdout.splitlines()] == [
        ["PIPELINE", "STATE", "HOST", "QUERIES", "LAG", "ALERTS"],
        ["bank", "running", "here", "1", "4", "1"],
        ["shop", "done", "here", "1", "4", "1"],
    ]
    shown = CliRunner().invoke(app, [*command, "shop"], prog_name="barnabas")
    assert "alert: out is late" in shown.stdout
    assert "out is 4 behind in t-0: at 5 of 9" in shown.stdout
    missing = CliRunner().invoke(app, [*command, "none"], prog_name="barnabas")
    assert missing.exit_code == 1
    assert f"topic {topic} has no status of a pipeline none" in missing.stderr


def test_a_topic_that_is_not_there_is_named(servers: str) -> None:
    with pytest.raises(BarnabasError, match=r"topic none-such: .*; set status_topic in pipeline\(\.\.\.\)"):
        read_statuses("none-such", {"bootstrap.servers": servers, "allow.auto.create.topics": "false"})


def test_brokers_that_do_not_answer_are_told_of_once_and_hold_up_nothing() -> None:
    told = Event()
    said: list[str] = []

    def say(words: str) -> None:
        said.append(words)
        told.set()

    client = {"bootstrap.servers": "127.0.0.1:1", "socket.timeout.ms": "1000"}
    writer = StatusTopic("statuses", client, say)
    writer.publish(status())
    assert told.wait(120)
    writer.publish(status(state="done"))
    writer.close()
    assert len(said) == 1
    assert said[0].startswith("the status cannot be written to the topic statuses: ")
