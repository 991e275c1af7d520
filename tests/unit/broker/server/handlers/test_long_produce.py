"""A batch that the coordinator of its transaction rejects."""

import asyncio
from types import SimpleNamespace

import pytest

from barnabas.base.environment.clock import SystemClock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.handlers import produce
from barnabas.broker.storage import LongValidation
from barnabas.kafka.protocol.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.kafka.records import Record, encode_batch


@pytest.mark.parametrize(
    ("code", "comes_again"),
    [
        (ErrorCode.NOT_ENOUGH_REPLICAS, True),
        (ErrorCode.CONCURRENT_TRANSACTIONS, True),
        (ErrorCode.TRANSACTION_ABORTABLE, False),
    ],
)
def test_no_later_batch_takes_the_place_of_one_that_comes_again(code, comes_again):
    noted = []
    partition = SimpleNamespace(note_rejected=lambda records, code: noted.append((records, code)))
    replicas = SimpleNamespace(find=lambda name, index: partition, partitions_of=lambda name: {})
    view = SimpleNamespace(clock=SystemClock())
    ports = produce.Ports(replicas, None, SimpleNamespace(now=lambda: 0.0), view)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=b"batch")])
    context = SimpleNamespace(reported_errors=0, api_version=11)
    request = ProduceRequest(acks=-1, topic_data=[topic])
    answer = produce._append_all(
        ports, context, request, {("t", 0): KafkaError(code)}, ProduceResponse(), [], []
    )
    assert answer.responses[0].partition_responses[0].error_code == code
    assert noted == ([(b"batch", code)] if comes_again else [])


def test_batch_whose_transaction_ended_during_its_validation_is_refused(monkeypatch):
    ended = KafkaError(ErrorCode.INVALID_TXN_STATE)
    monkeypatch.setattr(produce, "refusals", lambda replicas, guard, request, version: {("t", 0): ended})
    appended = []

    async def validate(*_):
        return None

    ports = produce.Ports(
        None, None, SimpleNamespace(validate=validate), SimpleNamespace(clock=SystemClock())
    )
    partition = SimpleNamespace(log=SimpleNamespace(config=None), append=lambda *args: appended.append(args))
    context = SimpleNamespace(api_version=11, reported_errors=0)
    request = ProduceRequest(transactional_id="x", acks=-1)
    result, response = PartitionProduceResponse(index=0), ProduceResponse()
    batch = produce._Unvalidated(
        partition,
        PartitionProduceData(index=0, records=b""),
        produce._Delayed(request, {}),
        result,
        (ports, context, response, "t"),
    )
    asyncio.run(produce._validate_and_append(ports, context, request, response, [batch], []))
    assert not appended
    assert result.error_code == ErrorCode.INVALID_TXN_STATE


def test_batch_whose_producer_has_begun_its_next_transaction_during_the_validation_is_refused(monkeypatch):
    """The coordinator says yes, about the next transaction: before version 12 it has the same epoch."""
    monkeypatch.setattr(produce, "refusals", lambda *_: {})
    markers, appended = [], []

    def append(records, acks, origin, valid=None):
        if valid is None:
            raise LongValidation
        appended.append(records)

    async def validate(*_):
        markers.append("the end of the transaction")
        return "valid"

    producers = SimpleNamespace(last_marker=lambda _: len(markers))
    partition = SimpleNamespace(
        append=append,
        log=SimpleNamespace(config=None, producers=producers),
        topic_partition=SimpleNamespace(topic="t"),
    )
    replicas = SimpleNamespace(find=lambda name, index: partition, partitions_of=lambda name: {})
    long_work = SimpleNamespace(validate=validate, now=lambda: 0.0)
    ports = produce.Ports(replicas, None, long_work, SimpleNamespace(clock=SystemClock()))
    batch = encode_batch([Record(None, b"v", 0)], producer_id=1, producer_epoch=0, transactional=True)
    topic = TopicProduceData(name="t", partition_data=[PartitionProduceData(index=0, records=batch)])
    request = ProduceRequest(transactional_id="x", acks=-1, topic_data=[topic])
    context = SimpleNamespace(api_version=11, client_id="c", reported_errors=0)
    answer = asyncio.run(produce.resolve(produce.produce.handle(ports, context, request)))
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.INVALID_TXN_STATE
    assert not appended
