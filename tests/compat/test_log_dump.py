"""`barnabas log dump` prints the same lines as Apache Kafka's DumpLogSegments."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer
from tests.compat.conftest import DUMP
from tests.integration.conftest import Wire, use_share_groups
from tests.integration.test_share_group_state import delete, initialize, ready, write

from barnabas.cli.app import app
from barnabas.kafka.protocol.messages.delete_groups import DeleteGroupsRequest
from barnabas.kafka.protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
)
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from barnabas.testing import BarnabasBroker

SETTINGS = {"log.index.interval.bytes": "200", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the log directory of a stopped broker. Its records use every codec, with keys, headers and
    tombstones; one of its groups was deleted.
    """
    path = tmp_path_factory.mktemp("dump") / "data"
    with BarnabasBroker(SETTINGS, data=path) as broker:
        broker.create_topic("t")
        for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
            with broker.producer(compression_type=codec) as producer:
                for number in range(30):
                    producer.send("t", f"{codec} {number}", key=f"k{number}", headers={"h": "v", "n": None})
                producer.send("t", None, key="gone")
                producer.send("t", "no key")
        for group in ("kept", "deleted"):
            with broker.consumer("t", group=group) as consumer:
                consumer.take(10)
        broker.admin().delete_group("deleted")
        for topics in (["t"], ["^t.*"]):  # a group of the consumer protocol, and a regex
            consumer = Consumer(
                {
                    "bootstrap.servers": broker.bootstrap_servers,
                    "group.id": "new",
                    "group.protocol": "consumer",
                    "auto.offset.reset": "earliest",
                }
            )
            consumer.subscribe(topics)
            assert consumer.consume(1, 30)
            consumer.close()
    return path


@pytest.mark.parametrize(
    "name",
    [
        "t-0/00000000000000000000.log",
        "t-0/00000000000000000000.index",
        "t-0/00000000000000000000.timeindex",
        "t-0/00000000000000000160.snapshot",
        "__consumer_offsets-0/00000000000000000000.log",
    ],
)
def test_it_prints_what_kafkas_tool_prints(java, data, name):
    decoder = ["--offsets-decoder"] if name.startswith("__") else []
    assert_same(java, data / name, *decoder)


#: a tagged field of share states that Kafka does not have
_OWN_FIELD = re.compile(r'"initializedAt":\d+,')


def assert_same(java, path: Path, *decoder: str) -> None:
    """Check that our tool prints the same of a file as Kafka's tool."""
    theirs = java.run(DUMP, "--files", str(path), "--print-data-log", *decoder).splitlines()
    output = CliRunner().invoke(app, ["log", "dump", str(path), "--records"]).output
    ours = _OWN_FIELD.sub("", output).splitlines()
    assert ours == [line for line in theirs if not line.startswith("Log starting offset")]
    assert len(ours) > 1


def test_it_prints_the_states_of_share_groups_as_kafkas_tool_does(java, tmp_path):
    settings = {
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.snapshot.update.records.per.snapshot": "2",
    }
    with BarnabasBroker(settings, data=tmp_path / "data") as broker:
        broker.create_topic("t")
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        ready(wire)
        initialize(wire, state_epoch=2, start_offset=5)
        for offset in range(5, 10):
            write(wire, (offset, offset + 9, 2, offset), state_epoch=2, delivery_complete_count=offset)
        delete(wire)
        wire.close()
    log = tmp_path / "data" / "__share_group_state-0" / "00000000000000000000.log"
    assert_same(java, log, "--share-group-state-decoder")


def test_it_prints_share_groups_as_kafkas_tool_does(java, tmp_path):
    def beat(epoch: int) -> Any:
        request = ShareGroupHeartbeatRequest(
            group_id="g", member_id="m", member_epoch=epoch, rack_id="r", subscribed_topic_names=["t"]
        )
        return wire(request)

    with BarnabasBroker({"offsets.topic.num.partitions": "1"}, data=tmp_path / "data") as broker:
        broker.create_topic("t", partitions=2)
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        wire(FindCoordinatorRequest(coordinator_keys=["any"]))  # makes the topic of the groups
        answer = beat(0)
        while answer.error_code or not answer.assignment.topic_partitions:
            answer = beat(answer.member_epoch)
        beat(-1)
        topics = [DeleteShareGroupOffsetsRequestTopic(topic_name="t")]
        assert not wire(DeleteShareGroupOffsetsRequest(group_id="g", topics=topics)).error_code
        assert not wire(DeleteGroupsRequest(groups_names=["g"])).results[0].error_code
        wire.close()
    assert_same(
        java, tmp_path / "data" / "__consumer_offsets-0" / "00000000000000000000.log", "--offsets-decoder"
    )
