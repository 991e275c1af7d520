"""A transaction coordinator on a log in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.clocks import VirtualClock
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerIdentity, TopicPartition
from barnabas.broker.awaitables import resolve
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator import Marker, TransactionCoordinator
from barnabas.broker.coordinator.transactions.codec import decode_record
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.features import TRANSACTION_VERSION, FinalizedFeatures
from barnabas.kafka.records import all_records

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Markers:
    """The leaders of partitions. They accept every marker, answer with `refusals`, or wait (`hold`)."""

    def __init__(self) -> None:
        self.written: list[tuple[Marker, TopicPartition]] = []
        self.refusals: dict[TopicPartition, ErrorCode] = {}
        self.hold = False
        self.held: list[asyncio.Future[None]] = []

    def write(self, marker, partitions):
        if self.hold:
            self.held.append(asyncio.get_running_loop().create_future())
            return self._later(self.held[-1], marker, partitions)
        return self._write(marker, partitions)

    def release(self) -> None:
        self.hold = False
        for future in self.held:
            future.set_result(None)

    async def _later(self, go, marker, partitions):
        await go
        return self._write(marker, partitions)

    def _write(self, marker, partitions):
        outcomes = {tp: self.refusals.get(tp, ErrorCode.NONE) for tp in partitions}
        self.written += [(marker, tp) for tp, code in outcomes.items() if code is ErrorCode.NONE]
        return outcomes


class Transactions:
    """A coordinator with short methods for requests. Each returns the answer, or the error code."""

    def __init__(self, log: Any, markers: Markers | None = None, version: int = 2, **settings: Any) -> None:
        self.log = log
        self.markers = markers or Markers()
        self.version = version
        self.view = view_of(
            ClusterImage(features=FinalizedFeatures(levels={TRANSACTION_VERSION: version})),
            config=BrokerConfig(transaction_state_log_num_partitions=1, **settings),
            clock=VirtualClock(asyncio.get_running_loop()),
        )
        self.next_id = 1000
        self.coordinator = TransactionCoordinator(
            self.view,
            log,
            self.markers,
            producer_ids=self._producer_id,
        )
        self.coordinator.elect(0, 0)
        self.coordinator.start()

    async def _producer_id(self) -> int:
        self.next_id += 1
        return self.next_id

    async def restart(self, epoch: int = 1) -> Transactions:
        """Start another broker on the same log, and load the log."""
        await self.coordinator.stop()
        again = type(self)(self.log, Markers(), self.version)
        again.next_id = self.next_id
        again.coordinator.elect(0, epoch)
        while again.coordinator.is_loading():
            await asyncio.sleep(0)
        return again

    async def init(self, expected: tuple[int, int] | None = None, timeout_ms: int = 60_000) -> Any:
        held = None if expected is None else ProducerIdentity(*expected)
        return await ask(lambda: self.coordinator.init_producer("x", timeout_ms, held))

    async def add(self, producer: ProducerIdentity, *partitions: TopicPartition, version: int = 0) -> Any:
        return await ask(lambda: self.coordinator.add_partitions("x", producer, partitions, version))

    async def end(self, producer: ProducerIdentity, *, commit: bool, version: int = 0) -> Any:
        return await ask(lambda: self.coordinator.end("x", producer, commit=commit, version=version))

    async def commit(self, producer: ProducerIdentity, version: int = 0) -> Any:
        return await self.end(producer, commit=True, version=version)

    async def abort(self, producer: ProducerIdentity, version: int = 0) -> Any:
        return await self.end(producer, commit=False, version=version)

    @property
    def state(self) -> str:
        return self.coordinator.describe("x")[0].state.label

    @property
    def producer(self) -> ProducerIdentity:
        return self.coordinator.describe("x")[0].producer

    def stored(self) -> list[str]:
        """Return the states in the log, in order."""
        data = b"".join(self.log.batches.get(0, []))
        stored = (decode_record(record.key, record.value) for record in all_records(data))
        return ["-" if s.transaction is None else s.transaction.state.label for s in stored]


async def ask(request: Callable[[], Any]) -> Any:
    try:
        return await resolve(request())
    except KafkaError as error:
        return error.code
    finally:
        await asyncio.sleep(0)  # a client that goes on has read its answer: some turns have passed


@pytest.fixture
def transact(memory_log) -> Callable[..., None]:
    """Run a scenario with a coordinator in virtual time: `transact(scenario, **settings)`."""

    def run(scenario: Callable[[Transactions], Coroutine[Any, Any, None]], **settings: Any) -> None:
        async def main() -> None:
            transactions = Transactions(memory_log(), **settings)
            await scenario(transactions)
            await transactions.coordinator.stop()

        run_virtual(main())

    return run


@pytest.fixture(scope="session")
def make_transactions() -> type[Transactions]:
    """Return the class `Transactions`, which makes transaction coordinators on the running event loop."""
    return Transactions
