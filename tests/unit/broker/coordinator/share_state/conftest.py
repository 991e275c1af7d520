"""A share coordinator on a log in memory, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.clocks import VirtualClock
from simulation.virtual_time import run_virtual
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.awaitables import resolve
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator import ShareCoordinator, SharePartitionKey, ShareState, StateBatch
from barnabas.broker.coordinator.share_state.codec import SnapshotRecord, decode_record
from barnabas.broker.coordinator.share_state.persister import CoordinatorPosition
from barnabas.broker.metadata.image import ClusterImage, ImageDelta, PartitionState, TopicImage
from barnabas.kafka.records import all_records

TOPIC = TopicImage("t", bytes(range(16)), (PartitionState((1,), (1,), leader=1),) * 4)
IMAGE = ClusterImage(topics={"t": TOPIC}, topic_names={TOPIC.id: "t"})
KEY = SharePartitionKey("g", TOPIC.id, 0)


class Shares:
    """A coordinator with short methods for requests. Each returns the answer, or the error code."""

    def __init__(self, log: Any, image: ClusterImage = IMAGE, **settings: Any) -> None:
        self.log = log
        self.settings = {"share_coordinator_state_topic_num_partitions": 1, **settings}
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.view = view_of(image, config=BrokerConfig(**self.settings), clock=self.clock)
        #: what was deleted from the log: all below an offset of a partition
        self.deleted: list[tuple[int, int]] = []
        self.coordinator = ShareCoordinator(self.view, log, self._delete_before)
        self.coordinator.elect(0, 0)

    async def _delete_before(self, partition: int, start: int) -> None:
        self.deleted.append((partition, start))

    async def restart(self, epoch: int = 1) -> Shares:
        """Start another broker on the same log, and load the log."""
        await self.coordinator.stop()
        again = type(self)(self.log, self.view.image, **self.settings)
        again.coordinator.elect(0, epoch)
        while again.coordinator.is_loading():
            await asyncio.sleep(0)
        return again

    async def initialize(
        self,
        epoch: int = 0,
        start: int = 0,
        key: SharePartitionKey = KEY,
        coordinator_epoch: int = -1,
        replaced: int = -1,
        log_end: int = -1,
    ) -> Any:
        sent = CoordinatorPosition(coordinator_epoch, log_end)
        return await ask(lambda: self.coordinator.initialize(key, epoch, start, sent, replaced))

    async def read(self, leader_epoch: int = 0, key: SharePartitionKey = KEY) -> Any:
        return await ask(lambda: self.coordinator.read_state(key, leader_epoch))

    async def write(
        self,
        *batches: tuple[int, int, int, int],
        state_epoch: int = 0,
        leader_epoch: int = 0,
        start: int = -1,
        complete: int = -1,
        key: SharePartitionKey = KEY,
        initialized_at: int = -1,
    ) -> Any:
        changes = [StateBatch(*batch) for batch in batches]
        return await ask(
            lambda: self.coordinator.write_state(
                key, state_epoch, leader_epoch, start, complete, changes, initialized_at
            )
        )

    async def delete(
        self, key: SharePartitionKey = KEY, coordinator_epoch: int = -1, log_end: int = -1
    ) -> Any:
        sent = CoordinatorPosition(coordinator_epoch, log_end)
        return await ask(lambda: self.coordinator.delete(key, sent))

    async def summary(self, key: SharePartitionKey = KEY) -> Any:
        return await ask(lambda: self.coordinator.summary(key))

    @property
    def states(self) -> dict[SharePartitionKey, ShareState]:
        return {key: held.state for key, held in self.coordinator.loaded_states()}

    def stored(self) -> list[str]:
        """Return the records in the log, in order."""
        records = all_records(b"".join(self.log.batches.get(0, [])))
        decoded = (decode_record(record.key, record.value) for record in records)
        return [
            "-"
            if isinstance(record, SnapshotRecord) and record.snapshot is None
            else "snapshot"
            if isinstance(record, SnapshotRecord)
            else "update"
            for record in decoded
        ]

    def delete_topic(self) -> None:
        """Delete the topic in the image, with the confirmation of its deletion."""
        before = self.view.image
        self.view.image = after = before._replace(
            topics={}, topic_names={}, deleted_topics={TOPIC.id: frozenset({1})}
        )
        self.coordinator.follow(1, ImageDelta(before, after, topics=frozenset({"t"})))


async def ask(request: Callable[[], Any]) -> Any:
    try:
        return await resolve(request())
    except KafkaError as error:
        return ErrorCode(error.code)


@pytest.fixture
def share(memory_log) -> Callable[..., None]:
    """Run a scenario with a coordinator in virtual time: `share(scenario, **settings)`."""

    def run(scenario: Callable[[Shares], Coroutine[Any, Any, None]], **settings: Any) -> None:
        async def main() -> None:
            shares = Shares(memory_log(), **settings)
            await scenario(shares)
            await shares.coordinator.stop()

        run_virtual(main())

    return run


@pytest.fixture(scope="session")
def make_shares() -> type[Shares]:
    """Return the class `Shares`, which makes share coordinators on the running event loop."""
    return Shares


@pytest.fixture(scope="session")
def key() -> SharePartitionKey:
    """Return the share partition that requests use by default."""
    return KEY
