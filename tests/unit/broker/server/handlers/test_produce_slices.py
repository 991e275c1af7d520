"""A produce of many partitions: the broker appends them in one short turn of the event loop, or in slices."""

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.base.environment.clock import SystemClock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.handlers import produce
from barnabas.broker.server.requests.long_work import SLICE
from barnabas.broker.storage import AppendInfo
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch

TRANSACTIONAL = encode_batch(
    [Record(None, b"v", 0)], producer_id=1, producer_epoch=0, base_sequence=0, transactional=True
)


class LongWork:
    """Slices of time whose clock advances with each append."""

    def __init__(self, seconds: float) -> None:
        self.time = 0.0
        self.seconds = seconds
        #: how many batches were appended when each slice was over
        self.slices = []
        self.appended = []
        #: the producer's last marker in all partitions
        self.marker = -1

    def now(self):
        return self.time

    async def next_slice(self):
        self.slices.append(len(self.appended))
        await asyncio.sleep(0)
        return self.time + SLICE

    def partitions_of(self, name):
        return {}

    def find(self, name, index):
        def append(records, acks, origin):
            self.time += self.seconds
            self.appended.append((name, index))
            return AppendInfo(0, 0, -1, 0, 0, False)

        return SimpleNamespace(
            append=append,
            log=SimpleNamespace(producers=SimpleNamespace(last_marker=lambda producer_id: self.marker)),
            is_acknowledged=lambda offset, acks: True,
            topic_partition=SimpleNamespace(topic=name),
            note_rejected=lambda records, code: None,
        )


def request(transactional_id=None):
    topics = [
        TopicProduceData(
            name=name,
            partition_data=[PartitionProduceData(index=index, records=TRANSACTIONAL) for index in range(50)],
        )
        for name in ("a", "b")
    ]
    return ProduceRequest(transactional_id=transactional_id, acks=-1, topic_data=topics)


def serve(work, asked, version=11):
    ports = produce.Ports(work, None, work, SimpleNamespace(clock=SystemClock()))
    context = SimpleNamespace(api_version=version, client_id="c", reported_errors=0)

    async def scenario():
        return await produce.resolve(produce.produce.handle(ports, context, asked))

    return asyncio.run(scenario())


def places(response):
    return [
        (topic.name, each.index, each.error_code)
        for topic in response.responses
        for each in topic.partition_responses
    ]


ALL = [(name, index, 0) for name in ("a", "b") for index in range(50)]


def test_produce_of_many_partitions_is_appended_in_one_turn(monkeypatch):
    monkeypatch.setattr(produce, "refusals", lambda *_: {})
    work = LongWork(SLICE / 200)
    assert places(serve(work, request("x"))) == ALL
    assert not work.slices


def test_produce_that_takes_long_lets_the_event_loop_serve_others(monkeypatch):
    monkeypatch.setattr(produce, "refusals", lambda *_: {})
    work = LongWork(SLICE / 20)
    assert places(serve(work, request("x"))) == ALL
    assert len(work.slices) >= 3
    assert all(
        0 < later - earlier <= 32 for earlier, later in zip([0, *work.slices], work.slices, strict=False)
    )


@pytest.mark.parametrize("refuse_from", [1, 2])
def test_coordinator_is_asked_about_the_rest_when_a_slice_is_over(monkeypatch, refuse_from):
    asked = []

    def refusals(replicas, guard, about, version):
        asked.append(
            [(topic.name, data.index) for topic in about.topic_data for data in topic.partition_data]
        )
        error = KafkaError(ErrorCode.INVALID_TXN_STATE)
        return dict.fromkeys(asked[-1], error) if len(asked) > refuse_from else {}

    monkeypatch.setattr(produce, "refusals", refusals)
    work = LongWork(SLICE / 20)
    found = places(serve(work, request("x")))
    every = [(name, index) for name, index, _ in ALL]
    assert asked == [every, *(every[begin:] for begin in work.slices)]
    kept = work.slices[refuse_from - 1]
    assert work.appended == every[:kept]
    assert [code for *_, code in found] == [0] * kept + [ErrorCode.INVALID_TXN_STATE] * (100 - kept)


@pytest.mark.parametrize(("version", "refuses"), [(11, True), (12, False)])
def test_rest_is_refused_if_the_producer_has_begun_its_next_transaction(monkeypatch, version, refuses):
    """Before version 12, its next transaction has the same epoch: the log would append the batches to it."""
    monkeypatch.setattr(produce, "refusals", lambda *_: {})
    work = LongWork(SLICE / 20)
    next_slice = work.next_slice

    async def end_transaction():
        work.marker = 7
        return await next_slice()

    work.next_slice = end_transaction
    codes = [code for *_, code in places(serve(work, request("x"), version))]
    kept = work.slices[0] if refuses else 100
    assert codes == [0] * kept + [ErrorCode.INVALID_TXN_STATE] * (100 - kept)
