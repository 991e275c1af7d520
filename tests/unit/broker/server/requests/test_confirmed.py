"""Answers that must not be stale wait until the broker knows that it led."""

from __future__ import annotations

import asyncio

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.broker.awaitables import is_awaitable
from barnabas.broker.server.requests.confirmed import confirmed

PLACE = TopicPartition("t", 0)


def run(scenario):
    def test():
        run_virtual(scenario())

    return test


class Index:
    """A read index in doubt, until the test gives its result."""

    def __init__(self, *, certain=False, damaged=None, proven=False):
        self.is_certain = certain
        self.has_damage = damaged is not None
        self._damaged = damaged
        self.asked = []
        self._proven = proven

    def in_doubt(self, partitions):
        return partitions if not self.is_certain else [each for each in partitions if each in self._damaged]

    def confirm(self, partitions):
        self.asked.append(list(partitions))
        self.confirming = None if self._proven else asyncio.get_running_loop().create_future()
        return self.confirming


def gated(handle, index):
    return confirmed(handle, index, index, lambda request: [PLACE], ErrorCode.NOT_COORDINATOR)(
        None, "request"
    )


@run
async def test_broker_that_is_certain_answers_at_once():
    index = Index(certain=True)
    assert gated(lambda context, request: "answer", index) == "answer"
    assert index.asked == []


@run
async def test_broker_that_is_certain_proves_only_the_partitions_whose_nodes_are_damaged():
    asked, index = [PLACE, TopicPartition("t", 1)], Index(certain=True, damaged=[PLACE], proven=True)
    gate = confirmed(lambda *_: "answer", index, index, lambda _: asked, ErrorCode.NOT_COORDINATOR)
    assert gate(None, "request") == "answer"
    assert index.asked == [[PLACE]]


@run
async def test_what_is_proven_already_is_answered_at_once():
    assert gated(lambda context, request: "answer", Index(proven=True)) == "answer"


@run
async def test_handler_runs_in_the_order_of_requests_and_its_answer_waits():
    index, served = Index(), []
    answer = gated(lambda context, request: served.append(request) or "answer", index)
    assert served == ["request"]
    assert index.asked == [[PLACE]]
    assert is_awaitable(answer)
    held = asyncio.ensure_future(answer)
    await asyncio.sleep(0)
    assert not held.done()
    index.confirming.set_result(True)
    assert await held == "answer"


@run
async def test_error_waits_as_an_answer_does():
    def fenced(context, request):
        raise KafkaError(ErrorCode.PRODUCER_FENCED)

    index = Index()
    held = asyncio.ensure_future(gated(fenced, index))
    await asyncio.sleep(0)
    assert not held.done()
    index.confirming.set_result(True)
    with pytest.raises(KafkaError) as raised:
        await held
    assert raised.value.code is ErrorCode.PRODUCER_FENCED


@run
async def test_unproven_answer_is_refused_and_what_its_handler_began_goes_on():
    done = asyncio.Event()

    async def append(context, request):
        await asyncio.sleep(0)
        done.set()
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    index = Index()
    held = asyncio.ensure_future(gated(append, index))
    await asyncio.sleep(0)
    index.confirming.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "nobody follows"))
    with pytest.raises(KafkaError) as raised:
        await held
    assert raised.value.code is ErrorCode.NOT_COORDINATOR
    await done.wait()
