"""What happens to a batch while it is validated in a thread."""

import asyncio
from types import SimpleNamespace

from barnabas.environment.clock import SystemClock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.produce import PartitionProduceResponse, ProduceRequest, ProduceResponse
from barnabas.server.handlers import produce


def test_batch_whose_transaction_ended_during_its_validation_is_refused(monkeypatch):
    ended = KafkaError(ErrorCode.INVALID_TXN_STATE)
    monkeypatch.setattr(produce, "refusals", lambda replicas, guard, request, version: {("t", 0): ended})
    appended = []

    async def run(function, *args, **kwargs):
        return None

    ports = produce.Ports(None, None, SimpleNamespace(run=run), SystemClock())
    partition = SimpleNamespace(log=SimpleNamespace(config=None), append=lambda *args: appended.append(args))
    context = SimpleNamespace(api_version=11, reported_errors=0)
    request = ProduceRequest(transactional_id="x", acks=-1)
    result = PartitionProduceResponse(index=0)
    batch = produce._Unvalidated(partition, ("t", 0), b"", result)
    asyncio.run(produce._validate_and_append(ports, context, request, ProduceResponse(), [batch], []))
    assert not appended
    assert result.error_code == ErrorCode.INVALID_TXN_STATE
