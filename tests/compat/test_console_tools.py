"""Apache Kafka's console tools work with the broker, and print the same as with Kafka."""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Callable

import pytest
from tests.compat.conftest import CONFIGS

TOPICS = "org.apache.kafka.tools.TopicCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"


@pytest.fixture
def tool(java, broker) -> Callable[..., str]:
    """Run a tool with --bootstrap-server."""

    def run(main: str, *arguments: str, stdin: str = "") -> str:
        return java.run(main, "--bootstrap-server", broker.bootstrap, *arguments, stdin=stdin)

    return run


def fields(line: str) -> dict[str, str]:
    """Return the fields of a line with tab-separated `Name: value` pairs, as kafka-topics prints."""
    pairs = (part.partition(":") for part in line.strip().split("\t"))
    return {name.strip(): value.strip() for name, _, value in pairs}


def rows(text: str) -> list[dict[str, str]]:
    """Return the rows of a table whose first line has the names of its columns."""
    lines = [line.split() for line in text.splitlines() if line.strip()]
    head = next(index for index, line in enumerate(lines) if "GROUP" in line)
    return [dict(zip(lines[head], line, strict=False)) for line in lines[head + 1 :]]


def test_kafka_topics_creates_describes_alters_and_deletes(tool):
    name = f"t-{uuid.uuid4()}"
    created = tool(
        TOPICS, "--create", "--topic", name, "--partitions", "3", "--replication-factor", "1",
        "--config", "retention.ms=123456",
    )  # fmt: skip
    assert f"Created topic {name}." in created
    assert name in tool(TOPICS, "--list").splitlines()

    head, *partitions = map(fields, tool(TOPICS, "--describe", "--topic", name).splitlines())
    assert head["Topic"] == name
    assert head["PartitionCount"] == "3"
    assert head["ReplicationFactor"] == "1"
    assert "retention.ms=123456" in head["Configs"]
    assert len(head["TopicId"]) == 22
    assert [line["Partition"] for line in partitions] == ["0", "1", "2"]
    for line in partitions:
        assert line["Leader"] == line["Replicas"] == line["Isr"] != ""

    tool(TOPICS, "--alter", "--topic", name, "--partitions", "5")
    assert len(tool(TOPICS, "--describe", "--topic", name).splitlines()) == 6
    tool(TOPICS, "--delete", "--topic", name)
    assert name not in tool(TOPICS, "--list").splitlines()


def test_kafka_topics_says_that_a_topic_exists(tool, topic):
    name = topic()
    with pytest.raises(AssertionError, match=f"Topic '{name}' already exists"):
        tool(TOPICS, "--create", "--topic", name)
    tool(TOPICS, "--create", "--topic", name, "--if-not-exists")


def test_kafka_topics_refuses_fewer_partitions_and_unknown_settings(tool, topic):
    name = topic(partitions=3)
    with pytest.raises(AssertionError, match="InvalidPartitionsException"):
        tool(TOPICS, "--alter", "--topic", name, "--partitions", "2")
    with pytest.raises(AssertionError, match=r"(?i)unknown topic config name: no\.such"):
        tool(TOPICS, "--create", "--topic", f"{name}-2", "--config", "no.such=1")


def test_console_producer_and_consumer_pass_keys_headers_and_order(tool, topic):
    name = topic()
    lines = [f"h{i}:v{i}\tk{i}\tvalue {i}" for i in range(100)]
    tool(
        PRODUCER, "--topic", name, "--reader-property", "parse.key=true",
        "--reader-property", "parse.headers=true", stdin="\n".join(lines) + "\n",
    )  # fmt: skip
    out = tool(
        CONSUMER, "--topic", name, "--from-beginning", "--max-messages", "100", "--timeout-ms", "20000",
        "--formatter-property", "print.key=true", "--formatter-property", "print.headers=true",
        "--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true",
    )  # fmt: skip
    assert out.splitlines() == [f"Partition:0\tOffset:{i}\th{i}:v{i}\tk{i}\tvalue {i}" for i in range(100)]


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_console_producer_compresses_with_every_codec(tool, topic, codec):
    name = topic()
    lines = [f"{codec} {i}" for i in range(300)]
    tool(PRODUCER, "--topic", name, "--compression-codec", codec, stdin="\n".join(lines) + "\n")
    out = tool(
        CONSUMER, "--topic", name, "--from-beginning", "--max-messages", "300", "--timeout-ms", "20000"
    )
    assert out.splitlines() == lines


def test_kafka_consumer_groups_lists_describes_resets_and_deletes(tool, topic):
    name, group = topic(partitions=2), f"g-{uuid.uuid4()}"
    tool(PRODUCER, "--topic", name, stdin="".join(f"{i}\n" for i in range(50)))
    consumed = tool(
        CONSUMER, "--topic", name, "--group", group, "--from-beginning",
        "--max-messages", "50", "--timeout-ms", "20000",
    )  # fmt: skip
    assert sorted(map(int, consumed.split())) == list(range(50))
    assert group in tool(GROUPS, "--list").splitlines()

    described = rows(tool(GROUPS, "--describe", "--group", group))
    assert sum(int(row["CURRENT-OFFSET"]) for row in described) == 50
    assert {row["LAG"] for row in described} == {"0"}
    state = tool(GROUPS, "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s.*Empty\s+0", state)

    tool(
        GROUPS, "--group", group, "--reset-offsets", "--to-earliest", "--topic", name, "--execute",
    )  # fmt: skip
    assert sum(int(row["LAG"]) for row in rows(tool(GROUPS, "--describe", "--group", group))) == 50
    tool(GROUPS, "--delete-offsets", "--group", group, "--topic", f"{name}:0")
    assert [row["PARTITION"] for row in rows(tool(GROUPS, "--describe", "--group", group))] == ["1"]
    assert "Deletion of requested consumer groups" in tool(GROUPS, "--delete", "--group", group)
    assert group not in tool(GROUPS, "--list").splitlines()


def test_kafka_consumer_groups_shows_a_live_member_with_its_partitions(java, tool, broker, topic):
    name, group = topic(partitions=2), f"g-{uuid.uuid4()}"
    tool(PRODUCER, "--topic", name, stdin="one\n")
    consumer = java.start(
        CONSUMER,
        "--bootstrap-server",
        broker.bootstrap,
        "--topic",
        name,
        "--group",
        group,
        "--from-beginning",
    )
    try:
        assert consumer.stdout is not None and consumer.stdout.readline() == "one\n"
        members = rows(tool(GROUPS, "--describe", "--group", group, "--members", "--verbose"))
        assert len(members) == 1
        assert members[0]["#PARTITIONS"] == "2"
        assert members[0]["HOST"] == "/127.0.0.1"
        assert f"{name}:0,1" in members[0].values()
        assert "GroupNotEmptyException" in tool(GROUPS, "--delete", "--group", group)
    finally:
        consumer.terminate()
        consumer.communicate()


def test_kafka_consumer_groups_shows_a_group_of_the_consumer_protocol(java, tool, broker, topic):
    name, group = topic(partitions=2), f"g-{uuid.uuid4()}"
    tool(PRODUCER, "--topic", name, stdin="one\n")
    consumer = java.start(
        CONSUMER, "--bootstrap-server", broker.bootstrap, "--topic", name, "--group", group,
        "--from-beginning", "--command-property", "group.protocol=consumer",
    )  # fmt: skip
    try:
        assert consumer.stdout is not None and consumer.stdout.readline() == "one\n"
        (member,) = rows(tool(GROUPS, "--describe", "--group", group, "--members", "--verbose"))
        assert (member["#PARTITIONS"], member["CURRENT-EPOCH"], member["TARGET-EPOCH"]) == ("2", "1", "1")
        assert member["CURRENT-ASSIGNMENT"] == member["TARGET-ASSIGNMENT"] == f"{name}:0,1"
        (state,) = rows(tool(GROUPS, "--describe", "--group", group, "--state", "--verbose"))
        assert (state["STATE"], state["GROUP-EPOCH"], state["TARGET-ASSIGNMENT-EPOCH"]) == (
            "Stable",
            "1",
            "1",
        )
        listed = [line.split() for line in tool(GROUPS, "--list", "--type").splitlines()]
        assert [group, "Consumer"] in listed
        assert group in tool(GROUPS, "--list", "--type", "consumer")
        assert group not in tool(GROUPS, "--list", "--type", "classic")
    finally:
        consumer.terminate()
        consumer.communicate()


def test_kafka_configs_sets_a_groups_session_timeout(tool):
    group = f"g-{uuid.uuid4()}"
    whose = ("--entity-type", "groups", "--entity-name", group)
    tool(CONFIGS, "--alter", *whose, "--add-config", "consumer.session.timeout.ms=50000")
    assert "consumer.session.timeout.ms=50000" in tool(CONFIGS, "--describe", *whose)
    tool(CONFIGS, "--alter", *whose, "--delete-config", "consumer.session.timeout.ms")
    assert "consumer.session.timeout.ms=50000" not in tool(CONFIGS, "--describe", *whose)


def test_kafka_configs_sets_appends_and_deletes_topic_settings(tool, topic):
    name = topic()
    alter = ("--alter", "--entity-type", "topics", "--entity-name", name)
    describe = ("--describe", "--entity-type", "topics", "--entity-name", name)
    tool(CONFIGS, *alter, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]")
    described = tool(CONFIGS, *describe)
    assert "retention.ms=1000" in described
    assert "cleanup.policy=compact,delete" in described
    assert "DYNAMIC_TOPIC_CONFIG:retention.ms=1000" in described
    tool(CONFIGS, *alter, "--delete-config", "retention.ms")
    assert "retention.ms" not in tool(CONFIGS, *describe)
    every = tool(CONFIGS, *describe, "--all")
    assert "segment.bytes=1073741824" in every
    assert "retention.ms=604800000" in every
    with pytest.raises(AssertionError, match="InvalidConfigurationException"):
        tool(CONFIGS, *alter, "--add-config", "retention.ms=soon")


def test_kafka_configs_describes_a_broker_and_changes_it_at_run_time(tool, node_id):
    entity = ("--entity-type", "brokers", "--entity-name", str(node_id))
    assert "log.segment.bytes=1073741824" in tool(CONFIGS, "--describe", *entity, "--all")
    tool(CONFIGS, "--alter", *entity, "--add-config", "message.max.bytes=2000000")
    described = tool(CONFIGS, "--describe", *entity)
    assert "message.max.bytes=2000000" in described
    assert "DYNAMIC_BROKER_CONFIG:message.max.bytes=2000000" in described
    tool(CONFIGS, "--alter", *entity, "--delete-config", "message.max.bytes")
    assert "message.max.bytes=1048588" in tool(CONFIGS, "--describe", *entity, "--all")


def test_kafka_log_dirs_shows_the_size_of_each_partition(tool, topic):
    name = topic(partitions=2)
    tool(PRODUCER, "--topic", name, stdin="x" * 1000 + "\n")
    out = tool("org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", name)
    report = json.loads(out.splitlines()[-1])
    (directory,) = report["brokers"][0]["logDirs"]
    assert directory["error"] is None
    sizes = {entry["partition"]: entry["size"] for entry in directory["partitions"]}
    assert set(sizes) == {f"{name}-0", f"{name}-1"}
    assert sum(sizes.values()) > 1000


def test_kafka_get_offsets_answers_by_time_and_special_times(tool, topic):
    name = topic()
    tool(PRODUCER, "--topic", name, stdin="".join(f"{i}\n" for i in range(7)))
    offsets = "org.apache.kafka.tools.GetOffsetShell"
    for time, expected in (("earliest", 0), ("latest", 7), ("-1", 7), ("-2", 0), ("0", 0)):
        assert tool(offsets, "--topic", name, "--time", time).strip() == f"{name}:0:{expected}"
    assert re.fullmatch(rf"{name}:0:\d", tool(offsets, "--topic", name, "--time", "max-timestamp").strip())


def test_kafka_delete_records_moves_the_log_start(tool, topic, tmp_path):
    name = topic()
    tool(PRODUCER, "--topic", name, stdin="".join(f"{i}\n" for i in range(10)))
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": name, "partition": 0, "offset": 4}], "version": 1})
    )
    out = tool("org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(wanted))
    assert f"partition: {name}-0\tlow_watermark: 4" in out
    read = tool(CONSUMER, "--topic", name, "--from-beginning", "--max-messages", "6", "--timeout-ms", "20000")
    assert read.split() == ["4", "5", "6", "7", "8", "9"]


def test_kafka_perf_tests_measure_the_broker(tool, topic):
    name = topic(partitions=3)
    produced = tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", name, "--num-records", "20000",
        "--record-size", "100", "--throughput", "-1", "--command-property", "acks=all",
    )  # fmt: skip
    assert "20000 records sent" in produced
    consumed = tool(
        "org.apache.kafka.tools.ConsumerPerformance", "--topic", name, "--num-records", "20000",
        "--timeout", "20000",
    )  # fmt: skip
    head, figures = ([cell.strip() for cell in line.split(",")] for line in consumed.splitlines()[:2])
    assert int(dict(zip(head, figures, strict=True))["data.consumed.in.nMsg"]) == 20_000


def test_kafka_broker_api_versions_finds_nothing_it_cannot_use(tool, broker):
    out = tool("org.apache.kafka.tools.BrokerApiVersionsCommand")
    assert broker.bootstrap in out
    for api in ("Produce(0)", "Fetch(1)", "JoinGroup(11)", "DescribeTopicPartitions(75)"):
        assert re.search(rf"{re.escape(api)}: .*\[usable: \d+\]", out), api


def test_kafka_cluster_prints_the_cluster_id(java, broker):
    out = java.run("org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", broker.bootstrap)
    assert re.search(r"Cluster ID: \S{22}", out)


def test_verifiable_producer_and_consumer_agree(tool, topic):
    name, group = topic(), f"g-{uuid.uuid4()}"
    produced = tool(
        "org.apache.kafka.tools.VerifiableProducer", "--topic", name, "--max-messages", "500",
        "--acks", "-1",
    )  # fmt: skip
    last = json.loads(produced.splitlines()[-1])
    assert (last["name"], last["sent"], last["acked"]) == ("tool_data", 500, 500)
    consumed = tool(
        "org.apache.kafka.tools.VerifiableConsumer", "--topic", name, "--group-id", group,
        "--max-messages", "500", "--reset-policy", "earliest",
    )  # fmt: skip
    events = [json.loads(line) for line in consumed.splitlines()]
    assert sum(event["count"] for event in events if event["name"] == "records_consumed") == 500
    assert any(event["name"] == "offsets_committed" and event["success"] for event in events)
