"""`barnabas log check` and `barnabas log repair` on the data of a stopped broker."""

import json
import os
import shutil
import struct

import pytest
from confluent_kafka import Producer

from barnabas.testing import BarnabasBroker
from barnabas.testing.broker import BrokerDied

SETTINGS = {"offsets.topic.num.partitions": "1", "log.segment.bytes": "1500"}
VALUES = [f"value {number} " + "x" * 50 for number in range(60)]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("repair") / "data"
    with BarnabasBroker(SETTINGS, data=path) as broker:
        broker.create_topic("orders", 2)
        with broker.producer(batch_num_messages=1) as producer:
            for value in VALUES:
                producer.send("orders", value, partition=0)
        with broker.consumer("orders", group="billing") as consumer:
            consumer.take(7)
    return path


@pytest.fixture
def data(whole, tmp_path):
    shutil.copytree(whole, tmp_path / "data")
    return tmp_path / "data"


def snapshot(data):
    return {str(file.relative_to(data)): file.read_bytes() for file in data.rglob("*") if file.is_file()}


def served(data):
    """Return the values of the topic's first 59 records, by offset."""
    with BarnabasBroker(SETTINGS, data=data) as broker, broker.consumer("orders") as consumer:
        return {record.offset: record.value for record in consumer.take(59)}


def test_whole_data_are_found_whole_and_nothing_is_changed(barnabas, data):
    before = snapshot(data)
    lines = barnabas("log", "check", data).lines
    assert all(line.startswith("whole ") for line in lines)
    assert any("metadata-1.journal" in line for line in lines)
    assert barnabas("log", "repair", data).lines == ["nothing to repair"]
    assert snapshot(data) == before


def test_data_of_a_running_broker_are_left_alone(barnabas, tmp_path):
    with BarnabasBroker(data=tmp_path / "data"):
        for command in ("check", "repair"):
            outcome = barnabas("log", command, tmp_path / "data", code=1)
            assert "a broker runs on" in outcome.err


def test_a_damaged_batch_is_named_and_the_others_are_served_again(barnabas, data):
    segment = sorted((data / "orders-0").glob("*.log"))[1]
    content = bytearray(segment.read_bytes())
    content[65] ^= 1  # in the records of its first batch
    segment.write_bytes(content)
    lost = int(segment.stem)
    findings = [json.loads(line) for line in barnabas("log", "check", data, "--json", code=1).lines]
    (finding,) = [finding for finding in findings if finding["state"] != "whole"]
    assert (finding["path"], finding["lost_from"], finding["lost_to"]) == (str(segment), lost, lost)

    before = snapshot(data)
    steps = barnabas("log", "repair", data, "--dry-run").lines
    assert f"orders-0: offsets {lost} to {lost} are lost" in steps
    assert snapshot(data) == before
    barnabas("log", "repair", data)
    (aside,) = data.glob("damaged.*")
    assert (aside / "orders-0" / segment.name).read_bytes() == content
    records = served(data)
    assert len(records) == 59
    assert lost not in records
    assert all(VALUES[offset] == value.decode() for offset, value in records.items())
    assert not [line for line in barnabas("log", "check", data).lines if not line.startswith("whole ")]


@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_metadata_that_no_copy_has_are_made_from_the_folders(barnabas, data, how):
    for copy in data.glob("metadata-*.journal"):
        if how == "gone":
            copy.unlink()
        else:
            copy.write_bytes(b"\xff" * 100)
    with pytest.raises(BrokerDied, match="barnabas log repair"), BarnabasBroker(data=data, mode="process"):
        pass
    steps = "\n".join(barnabas("log", "repair", data).lines)
    assert "topics restored from their folders, without their settings: __consumer_offsets, orders" in steps
    with (
        BarnabasBroker(SETTINGS, data=data) as broker,
        broker.consumer("orders", group="billing") as consumer,
    ):
        assert [record.offset for record in consumer.take(3)] == [7, 8, 9]
    assert sorted(served(data)) == list(range(59))


@pytest.mark.parametrize("command", ["check", "repair"])
@pytest.mark.parametrize("name", ["metadata-1.journal", "meta.properties", "orders-0/partition.metadata"])
def test_a_file_that_the_user_may_not_read_is_not_damaged(barnabas, data, monkeypatch, name, command):
    permitted = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: path != data / name and permitted(path, mode))
    before = snapshot(data)
    outcome = barnabas("log", command, data, code=1)
    assert f"{data / name}: permission denied: run the command as the user of the broker" in outcome.err
    assert snapshot(data) == before


def test_a_missing_copy_of_the_metadata_is_left_to_the_next_start(barnabas, data):
    first, second = data / "metadata-1.journal", data / "metadata-2.journal"
    first.unlink()
    [line] = [line for line in barnabas("log", "check", data, code=1).lines if not line.startswith("whole")]
    assert line == f"missing  {first}: is missing; the next start writes it from {second}"
    assert barnabas("log", "repair", data).lines == ["nothing to repair"]
    assert len(served(data)) == 59
    assert barnabas("log", "check", data).err == ""


def test_a_file_in_the_place_of_a_partitions_folder_is_moved_away(barnabas, data):
    shutil.rmtree(data / "orders-0")
    (data / "orders-0").write_bytes(b"someone's")
    assert "orders-0: a file is in the place of the folder" in barnabas("log", "check", data, code=1).out
    steps = barnabas("log", "repair", data, "--dry-run").lines
    assert len(barnabas("log", "repair", data).lines) == len(steps)
    barnabas("log", "check", data)
    [kept] = data.glob("damaged.*/orders-0")
    assert kept.read_bytes() == b"someone's"


def test_a_partition_whose_folder_is_gone_goes_on_behind_what_is_lost(barnabas, data):
    shutil.rmtree(data / "orders-0")
    assert "the folder is gone with its offsets up to 59" in barnabas("log", "check", data, code=1).out
    barnabas("log", "repair", data)
    with BarnabasBroker(SETTINGS, data=data) as broker:
        with broker.producer() as producer:
            producer.send("orders", "new", partition=0)
        with broker.consumer("orders") as consumer:
            (record,) = consumer.take(1)
        assert (record.offset, record.value) == (60, b"new")


@pytest.mark.parametrize("place", ["first", "last"])
@pytest.mark.parametrize("field", [0, 1])
@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_of_the_right_size_that_says_something_else_is_found_and_built_again(
    barnabas, tmp_path, suffix, field, place
):
    path = tmp_path / "data"
    settings = SETTINGS | {"log.segment.bytes": "60000", "log.index.interval.bytes": "100"}
    with BarnabasBroker(settings, data=path) as broker:
        broker.create_topic("orders", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "batch.num.messages": 1})
        for number, value in enumerate(VALUES):
            producer.produce("orders", value, timestamp=1_700_000_000_000 + number)
        producer.flush(60)
    (file,) = (path / "orders-0").glob(f"*{suffix}")
    right = file.read_bytes()
    entry = struct.Struct(">II" if suffix == ".index" else ">qi")
    at = 0 if place == "first" else len(right) - entry.size
    values = list(entry.unpack_from(right, at))
    values[field] += 1 if suffix == ".index" and field else 1000
    file.write_bytes(right[:at] + entry.pack(*values) + right[at + entry.size :])
    (line,) = [line for line in barnabas("log", "check", path, code=1).lines if not line.startswith("whole")]
    assert line.startswith("damaged ") and str(file) in line
    barnabas("log", "repair", path)
    with BarnabasBroker(settings, data=path) as broker, broker.consumer("orders") as consumer:
        assert [record.value.decode() for record in consumer.take(60)] == VALUES
    assert file.read_bytes() == right
    assert all(line.startswith("whole ") for line in barnabas("log", "check", path).lines)


@pytest.fixture(scope="module")
def aborted(tmp_path_factory):
    """Data with an aborted transaction, and a later committed one of the same producer."""
    path = tmp_path_factory.mktemp("aborted") / "data"
    with BarnabasBroker(data=path) as broker:
        broker.create_topic("payments", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "till"})
        producer.init_transactions(60)
        for value, end in ("no", producer.abort_transaction), ("yes", producer.commit_transaction):
            producer.begin_transaction()
            producer.produce("payments", value)
            producer.flush(60)
            end(20)
    return path


@pytest.fixture
def payments(aborted, tmp_path):
    shutil.copytree(aborted, tmp_path / "data")
    return tmp_path / "data"


def committed(data):
    with BarnabasBroker(data=data) as broker, broker.consumer("payments") as consumer:
        return [record.value for record in consumer.take(1)]


@pytest.mark.parametrize("damage", ["gone", "another offset", "nothing in it"])
def test_an_index_of_aborted_transactions_that_says_something_else_is_found_and_built_again(
    barnabas, payments, damage
):
    (file,) = (payments / "payments-0").glob("*.txnindex")
    right = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(right[:-9] + b"\5" + right[-8:] if damage == "another offset" else b"")
    (line,) = [
        line for line in barnabas("log", "check", payments, code=1).lines if not line.startswith("whole")
    ]
    assert str(file) in line
    assert line.startswith("missing" if damage == "gone" else "damaged")
    barnabas("log", "repair", payments)
    assert committed(payments) == [b"yes"]
    assert file.read_bytes() == right
    assert all(line.startswith("whole ") for line in barnabas("log", "check", payments).lines)


@pytest.mark.parametrize("index", ["whole", "gone", "cut"])
def test_records_whose_abort_marker_is_lost_are_not_committed_by_the_next_one(barnabas, payments, index):
    (segment,) = (payments / "payments-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    marker = content.index(b"\x00\x00\x00\x01", 12 + int.from_bytes(content[8:12]))  # its offset is 1
    content[marker + 4 + 60] ^= 1
    segment.write_bytes(content)
    file = segment.with_suffix(".txnindex")
    if index == "gone":
        file.unlink()
    elif index == "cut":
        file.write_bytes(file.read_bytes()[:20])
    steps = barnabas("log", "repair", payments).lines
    assert any("count as aborted" in step for step in steps) == (index != "whole")
    assert committed(payments) == [b"yes"]


def test_a_lost_batch_of_a_committed_transaction_does_not_abort_the_rest(barnabas, tmp_path):
    path = tmp_path / "data"
    with BarnabasBroker(data=path) as broker:
        broker.create_topic("payments", 1)
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "till"})
        producer.init_transactions(60)
        for end in (producer.abort_transaction, producer.commit_transaction):
            producer.begin_transaction()
            for value in ("first", "second", "third"):
                producer.produce("payments", value)
                producer.flush(60)
            end(60)
    (segment,) = (path / "payments-0").glob("*.log")
    content = bytearray(segment.read_bytes())
    content[content.rindex(b"second")] ^= 1
    segment.write_bytes(content)
    segment.with_suffix(".txnindex").unlink()
    barnabas("log", "repair", path)
    with BarnabasBroker(data=path) as broker, broker.consumer("payments") as consumer:
        assert [record.value for record in consumer.take(2, 60)] == [b"first", b"third"]
