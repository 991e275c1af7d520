"""The lanes of the live picture: they show each record, unless there are too many."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from barnabas.client import fetching
from barnabas.console import live
from barnabas.console.live import TopicReader
from barnabas.kafka.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from barnabas.kafka.records import Record
from barnabas.kafka.records.builder import encode_batch


class Log:
    """One partition. A fetch returns batches of at most `max_bytes`, but at least
    one batch, as a broker does.
    """

    def __init__(self) -> None:
        self.batches: list[tuple[int, bytes]] = []
        self.start = self.end = self.stable = 0

    def append(self, *values: bytes, is_open: bool = False) -> None:
        records = [Record(None, value, 1000, ()) for value in values]
        data = encode_batch(
            records, base_offset=self.end, transactional=is_open, producer_id=7 if is_open else -1
        )
        self.end += len(values)
        self.batches.append((self.end, data))
        if not is_open and self.stable + len(values) == self.end:
            self.stable = self.end


class Kafka:
    def __init__(self, log: Log) -> None:
        self.log = log
        partition = SimpleNamespace(
            partition_index=0, leader_id=1, leader_epoch=0, replica_nodes=[1], isr_nodes=[1]
        )
        topic = SimpleNamespace(name="t", topic_id=bytes(16), error_code=0, partitions=[partition])
        broker = SimpleNamespace(node_id=1, host="127.0.0.1", port=9092, rack=None)
        self._metadata = SimpleNamespace(brokers=[broker], topics=[topic])

    def metadata(self, names=None):
        return self._metadata

    def ask(self, broker, request):
        (wanted,) = request.topics[0].partitions
        if wanted.fetch_offset < self.log.start:
            data = PartitionData(partition_index=0, error_code=1, high_watermark=-1)
            return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])
        bound = self.log.stable if request.isolation_level else self.log.end
        data = b""
        for end, batch in self.log.batches:
            fits = not data or len(data) + len(batch) <= wanted.partition_max_bytes
            if wanted.fetch_offset < end <= bound and fits:
                data += batch
        answered = PartitionData(
            partition_index=0,
            high_watermark=self.log.end,
            last_stable_offset=self.log.stable,
            log_start_offset=0,
            aborted_transactions=[],
            records=data,
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[answered])])


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def look(log, monkeypatch):
    """``look()``: return the lane of the next sample."""

    def offsets_at(brokers, leaders, which, committed=False):
        return dict.fromkeys(
            leaders, log.start if which == live.EARLIEST else log.stable if committed else log.end
        )

    monkeypatch.setattr(live, "offsets_at", offsets_at)
    cluster = Kafka(log)
    view = SimpleNamespace(
        brokers=cluster,
        metadata=cluster.metadata,
        clock=SimpleNamespace(now_ms=lambda: 0),
        controller=lambda: 1,
        ensemble=list,
        committed=dict,
        share_groups_of=lambda topic: [],
    )
    reader = TopicReader(view, "t")
    monkeypatch.setattr(reader, "_describe_producers", lambda leaders: [])
    monkeypatch.setattr(reader, "_describe_replicas", lambda leaders: {})

    def shown():
        (lane,) = reader.look()["lanes"]
        return lane

    shown()
    return shown


def offsets(lane):
    return [offset for offset, *_ in lane.get("cells", [])]


def test_two_large_records_between_two_looks_are_two_cells(log, look):
    large = bytes(live._MAX_BYTES - 1000)
    log.append(large)
    log.append(large)
    lanes = [look(), look()]
    assert [*offsets(lanes[0]), *offsets(lanes[1])] == [0, 1]
    assert not any("block" in lane for lane in lanes)


def test_a_record_of_an_open_transaction_behind_others_is_a_cell(log, look):
    log.append(b"a")
    log.append(b"b", is_open=True)
    lane = look()
    assert "block" not in lane
    assert [(offset, what) for offset, _, _, what in lane["cells"]] == [(0, ""), (1, "open")]


def test_many_records_between_two_looks_are_a_number(log, look):
    log.append(*[b"x"] * 100)
    lane = look()
    assert [*offsets(lane)][-1] + 1 == lane["block"][0] and lane["block"][1] == 100


def test_a_lane_goes_on_when_retention_has_taken_what_it_had_not_read(log, look):
    log.append(*[b"x"] * 5)
    log.start = 4
    lanes = [look() for _ in range(live._SLOWLY)]
    assert lanes[-1]["end"] == 5 and [offset for lane in lanes for offset in offsets(lane)] == [4]


def test_a_damaged_batch_is_a_number(log, look):
    log.append(b"good")
    end, batch = log.batches[0]
    log.batches[0] = end, batch[:-1] + b"\xff"
    lane = look()
    assert lane["cells"] == [] and lane["block"] == [0, 1]
    assert fetching.next_offset(SimpleNamespace(data=b""), 7) == 7
