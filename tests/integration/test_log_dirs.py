"""Several log directories: the choice for a new partition, and a directory that cannot be read."""

from __future__ import annotations

import shutil

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.cli.log.check import check_directories
from barnabas.cli.log.repair import Repair
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.describe_log_dirs import DescribeLogDirsRequest


@pytest.fixture
def paths(tmp_path):
    return [tmp_path / "a", tmp_path / "b"]


@pytest.fixture
def start(paths):
    running = []

    def start_broker():
        config = BrokerConfig(
            listeners=("PLAINTEXT://127.0.0.1:0",),
            log_dirs=tuple(map(str, paths)),
            log_segment_delete_delay_ms=0,
        )
        running.append(BrokerServer(config).start())
        return running[-1]

    yield start_broker
    for broker in running:
        broker.stop()


def folders(path, topic):
    return sorted(folder.name for folder in path.glob(f"{topic.name}-*"))


def test_partitions_are_spread_evenly(paths, start, connect, make_topic):
    topic = make_topic(6, by=connect(start()))
    assert [len(folders(path, topic)) for path in paths] == [3, 3]


def topic_in_both(paths, wire, make_topic, produce, batch):
    """Create a topic with a record in each of two partitions.

    Return the topic, and the partition that is in the second directory.
    """
    topic = make_topic(2, by=wire)
    for partition in (0, 1):
        produce(topic, batch(b"%d" % partition), partition=partition, by=wire)
    return topic, next(each for each in (0, 1) if (paths[1] / f"{topic.name}-{each}").is_dir())


def test_what_lies_in_an_unreadable_directory_is_an_error_and_is_not_made_anew(
    paths, start, connect, make_topic, produce, batch, fetch_request, read_values
):
    broker = start()
    wire = connect(broker)
    topic, away = topic_in_both(paths, wire, make_topic, produce, batch)
    broker.stop()

    kept = paths[1].rename(paths[1].with_name("kept"))
    paths[1].write_text("no folder")
    broker = start()
    wire = connect(broker)
    codes = {p: produce(topic, batch(b"x"), partition=p, by=wire).error_code for p in (0, 1)}
    assert codes == {away: ErrorCode.KAFKA_STORAGE_ERROR, 1 - away: 0}
    dirs = {r.log_dir: r.error_code for r in wire(DescribeLogDirsRequest(topics=None)).results}
    assert dirs == {str(paths[0]): 0, str(paths[1]): ErrorCode.KAFKA_STORAGE_ERROR}
    another = make_topic(1, by=wire)
    assert produce(another, batch(b"y"), by=wire).error_code == 0
    broker.stop()

    paths[1].unlink()
    kept.rename(paths[1])
    wire = connect(start())
    data = {d.partition_index: d for d in wire(fetch_request(topic, {0: 0, 1: 0})).responses[0].partitions}
    assert read_values(data[away]) == [b"%d" % away]
    assert read_values(data[1 - away]) == [b"%d" % (1 - away), b"x"]


def test_a_directory_that_is_not_named_any_more_loses_nothing_until_a_repair_forgets_it(
    paths, start, connect, make_topic, produce, batch, fetch_request, read_values
):
    broker = start()
    wire = connect(broker)
    topic, away = topic_in_both(paths, wire, make_topic, produce, batch)
    broker.stop()

    def codes_without_second(value):
        broker = start()
        wire = connect(broker)
        codes = {p: produce(topic, batch(value), partition=p, by=wire).error_code for p in (0, 1)}
        broker.stop()
        return codes

    second = paths.pop()
    assert codes_without_second(b"x") == {away: ErrorCode.KAFKA_STORAGE_ERROR, 1 - away: 0}
    paths.append(second)
    broker = start()
    wire = connect(broker)
    data = {d.partition_index: d for d in wire(fetch_request(topic, {0: 0, 1: 0})).responses[0].partitions}
    assert read_values(data[away]) == [b"%d" % away]
    assert read_values(data[1 - away]) == [b"%d" % (1 - away), b"x"]
    broker.stop()

    shutil.rmtree(paths.pop())
    found = check_directories(paths)
    (missing,) = (each for each in found.findings if each.path.endswith("meta.properties") and each.is_damage)
    assert missing.detail.endswith("is missing: name it, too, if it is not lost")
    assert Repair(found, lambda _: None, dry_run=False).run()
    assert codes_without_second(b"y") == {0: 0, 1: 0}


def test_partitions_without_records_are_served_while_a_directory_is_missing_and_when_it_is_back(
    paths, start, connect, make_topic, produce, batch, fetch_request, read_values
):
    broker = start()
    wire = connect(broker)
    blank, full = make_topic(4, by=wire), make_topic(2, by=wire)
    for partition in (0, 1):
        produce(full, batch(b"%d" % partition), partition=partition, by=wire)
    away = next(partition for partition in (0, 1) if (paths[1] / f"{full.name}-{partition}").is_dir())
    broker.stop()

    second = paths.pop()
    broker = start()
    wire = connect(broker)
    assert [produce(blank, batch(b"x"), partition=p, by=wire).error_code for p in range(4)] == [0] * 4
    assert produce(full, batch(b"x"), partition=away, by=wire).error_code == ErrorCode.KAFKA_STORAGE_ERROR
    broker.stop()

    paths.append(second)
    wire = connect(start())
    for topic, values in ((blank, {p: [b"x"] for p in range(4)}), (full, {0: [b"0"], 1: [b"1"]})):
        (answer,) = wire(fetch_request(topic, dict.fromkeys(values, 0))).responses
        assert {d.partition_index: read_values(d) for d in answer.partitions} == values


def test_a_folder_of_no_known_topic_stays_where_it_is_until_its_name_is_taken(
    paths, caplog, start, connect, make_topic, produce, batch, fetch_request, read_values
):
    broker = start()
    wire = connect(broker)
    topic = make_topic(1, by=wire)
    produce(topic, batch(b"mine"), by=wire)
    broker.stop()
    folder = paths[0] / f"{topic.name}-0"
    shutil.copytree(folder, paths[0] / "unknown-0")
    shutil.copytree(folder, paths[0] / f"{topic.name}-7")

    wire = connect(start())
    assert "2 folders belong to no topic of this broker and are left alone" in caplog.text
    assert len(list(paths[0].glob("unknown-0/*.log"))) == 1
    assert len(list(paths[0].glob(f"{topic.name}-7/*.log"))) == 1
    (data,) = wire(fetch_request(topic, {0: 0})).responses[0].partitions
    assert read_values(data) == [b"mine"]
    created = wire(
        CreateTopicsRequest(topics=[CreatableTopic(name="unknown", num_partitions=2, replication_factor=1)])
    )
    assert created.topics[0].error_code == 0
    assert len(list(paths[0].glob("unknown-0.*-stray/*.log")) + list(paths[1].glob("unknown-0"))) == 1


def test_a_deleted_topics_folder_goes_and_its_name_is_free(paths, start, connect, make_topic, produce, batch):
    broker = start()
    wire = connect(broker)
    topic = make_topic(2, by=wire)
    produce(topic, batch(b"old"), by=wire)
    deletion = DeleteTopicsRequest(topics=[DeleteTopicState(name=None, topic_id=topic.id)], timeout_ms=60_000)
    assert wire(deletion).responses[0].error_code == 0
    assert [
        folder for path in paths for folder in folders(path, topic) if not folder.endswith("-delete")
    ] == []
    broker.stop()
    start()
    assert [folder for path in paths for folder in folders(path, topic)] == []
