"""`barnabas log dump` on files that a broker wrote."""

import json

import pytest
from confluent_kafka import Producer

from barnabas.testing import BarnabasBroker

SETTINGS = {"log.index.interval.bytes": "100", "offsets.topic.num.partitions": "1"}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Return the log directory of a stopped broker: a topic of 25 records in 5
    batches, which a group has read.
    """
    path = tmp_path_factory.mktemp("log") / "data"
    with BarnabasBroker(SETTINGS, data=path) as broker:
        broker.create_topic("t")
        for batch in range(5):
            with broker.producer(compression_type="lz4", linger_ms=50) as producer:
                for number in range(5):
                    producer.send(
                        "t", f"value {batch}.{number} " + "x" * 50, key=f"k{number}", headers={"h": "v"}
                    )
        with broker.consumer("t", group="readers") as consumer:
            consumer.take(7)
    return path


def objects(outcome):
    return [json.loads(line) for line in outcome.lines]


def test_batches_are_printed_as_kafkas_tool_does(barnabas, data):
    path = data / "t-0" / "00000000000000000000.log"
    head, *lines = barnabas("log", "dump", path).lines
    assert head == f"Dumping {path}"
    assert len(lines) == 5
    assert lines[1].startswith(
        "baseOffset: 5 lastOffset: 9 count: 5 baseSequence: 0 lastSequence: 4 producerId: "
    )
    assert (
        "isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty position: " in lines[1]
    )
    assert " magic: 2 compresscodec: lz4 crc: " in lines[1]
    assert lines[1].endswith(" isvalid: true")


def test_records_are_printed_below_their_batch(barnabas, data):
    lines = barnabas("log", "dump", data / "t-0" / "00000000000000000000.log", "--records").lines
    assert len([line for line in lines if line.startswith("| offset: ")]) == 25
    assert "keySize: 2 valueSize: 60 sequence: 1 headerKeys: [h] key: k1 payload: value 0.1 xxx" in lines[3]


def test_json_has_every_record(barnabas, data):
    batches = objects(
        barnabas("log", "dump", data / "t-0" / "00000000000000000000.log", "--records", "--json")
    )
    records = [record for batch in batches for record in batch["records"]]
    assert [record["offset"] for record in records] == list(range(25))
    assert records[6]["key"] == "k1"
    assert records[6]["headers"] == [["h", "v"]]


def test_batches_before_an_offset_are_left_out(barnabas, data):
    path = data / "t-0" / "00000000000000000000.log"
    batches = objects(barnabas("log", "dump", path, "--from-offset", 12, "--json"))
    assert [batch["base_offset"] for batch in batches] == [10, 15, 20]


def test_a_directory_stands_for_all_its_files(barnabas, data):
    entries = objects(barnabas("log", "dump", data / "t-0", "--json"))
    by_kind = {}
    for entry in entries:
        by_kind.setdefault(entry["file"].rpartition("/")[2].rpartition(".")[2], []).append(entry)
    assert set(by_kind) == {"log", "index", "timeindex", "snapshot", "leader-epoch-checkpoint"}
    positions = {batch["position"] for batch in by_kind["log"]}
    assert all(entry["position"] in positions for entry in by_kind["index"])
    assert [entry["last_sequence"] for entry in by_kind["snapshot"]] == [4] * 5
    assert by_kind["leader-epoch-checkpoint"][0]["start_offset"] == 0


def test_records_of_consumer_offsets_are_decoded(barnabas, data):
    batches = objects(barnabas("log", "dump", data / "__consumer_offsets-0", "--records", "--json"))
    records = [record for batch in batches for record in batch.get("records", [])]
    offsets = [record for record in records if record["key"]["type"] == "1"]
    assert offsets[-1]["key"]["data"] == {"group": "readers", "topic": "t", "partition": 0}
    assert offsets[-1]["value"]["data"]["offset"] == 7
    [group] = [r for r in records if r["key"]["type"] == "2" and r["value"] and r["value"]["data"]["members"]]
    member = group["value"]["data"]["members"][0]
    assert member["subscription"]["topics"] == ["t"]
    assert member["assignment"]["assigned_partitions"] == [{"topic": "t", "partitions": [0]}]
    assert (
        '{"type":"1","data":{"group":"readers"'
        in barnabas("log", "dump", data / "__consumer_offsets-0", "--records").out
    )


@pytest.fixture(scope="module")
def transactional_data(tmp_path_factory):
    """Return a log directory with one committed and one aborted transaction."""
    path = tmp_path_factory.mktemp("log") / "data"
    with BarnabasBroker({"transaction.state.log.num.partitions": "1"}, data=path) as broker:
        broker.create_topic("t")
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
        producer.init_transactions(60)
        for end in (producer.commit_transaction, producer.abort_transaction):
            producer.begin_transaction()
            producer.produce("t", b"v", partition=0)
            producer.flush(60)
            end(20)
    return path


def test_records_of_transaction_state_are_decoded(barnabas, transactional_data):
    path = transactional_data / "__transaction_state-0"
    batches = objects(barnabas("log", "dump", path, "--records", "--json"))
    records = [record for batch in batches for record in batch.get("records", [])]
    assert all(record["key"] == {"type": "0", "data": {"transactional_id": "x"}} for record in records)
    values = [record["value"]["data"] for record in records]
    assert [value["transaction_status"] for value in values] == [0, 1, 2, 4, 1, 3, 5]
    assert values[1]["transaction_partitions"] == [{"topic": "t", "partition_ids": [0]}]


def test_markers_and_aborted_transactions_are_shown(barnabas, transactional_data):
    out = barnabas("log", "dump", transactional_data / "t-0", "--records").out
    assert "endTxnMarker: COMMIT coordinatorEpoch: 0" in out
    assert "endTxnMarker: ABORT coordinatorEpoch: 0" in out
    assert "firstOffset: 2 lastOffset: 3 lastStableOffset: 4" in out


def test_a_flipped_bit_is_found(barnabas, data, tmp_path):
    content = bytearray((data / "t-0" / "00000000000000000000.log").read_bytes())
    content[-3] ^= 1
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content)
    outcome = barnabas("log", "dump", path, code=1)
    assert outcome.lines[-1].endswith("isvalid: false")
    assert f"{path}: the batch's CRC is" in outcome.err


def test_a_torn_end_is_found(barnabas, data, tmp_path):
    content = (data / "t-0" / "00000000000000000000.log").read_bytes()
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(content[:-5])
    outcome = barnabas("log", "dump", path, code=1)
    assert len(outcome.lines) == 6
    assert "are not a whole batch" in outcome.lines[-1]
    assert "torn end" in outcome.err


def test_a_file_of_another_kind_is_refused(barnabas, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("hello")
    assert "not a file of a log" in barnabas("log", "dump", path, code=1).err
    assert "does not exist" in barnabas("log", "dump", tmp_path / "nowhere", code=2).err


def test_an_empty_segment_has_no_entries(barnabas, tmp_path):
    path = tmp_path / "00000000000000000000.log"
    path.touch()
    assert barnabas("log", "dump", path).lines == [f"Dumping {path}"]


@pytest.mark.parametrize("command", ["check", "repair"])
def test_folder_of_several_brokers_is_not_checked_as_that_of_one(barnabas, tmp_path, command):
    (tmp_path / "cluster.json").write_text("{}")
    outcome = barnabas("log", command, tmp_path, code=1)
    assert f"name one of them, such as {tmp_path}/broker-1" in outcome.err
