"""A controller on a metadata store in memory, with several live brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import pytest
from simulation.clocks import ManualClock
from simulation.memory_store import MemoryServer, MemoryStore

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import Controller
from barnabas.broker.controller.replica_logs import Ask
from barnabas.broker.metadata import ClusterImage, MetadataLoader, znodes
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage
from barnabas.broker.metadata.opening import prepare
from barnabas.broker.view import MutableView


@dataclass
class Member:
    """The parts of one broker that concern the controller."""

    store: Any
    loader: MetadataLoader
    controller: Controller

    @property
    def image(self) -> ClusterImage:
        return self.loader.image


def broker_image(broker_id: int, rack: str | None = None) -> BrokerImage:
    return BrokerImage(broker_id, (BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9000 + broker_id),), rack)


async def _nobody(broker: int, request: object) -> object:
    raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)


async def join(
    server: MemoryServer,
    config: BrokerConfig,
    *,
    start: bool = True,
    on_failure: Callable[[Exception], None] | None = None,
    **registered: Any,
) -> Member:
    """Start a broker of the cluster. `registered` are fields of its registration."""
    return await join_by(MemoryStore(server), config, start=start, on_failure=on_failure, **registered)


async def join_by(
    store: Any,
    config: BrokerConfig,
    *,
    start: bool = True,
    on_failure: Callable[[Exception], None] | None = None,
    ask: Ask | None = None,
    **registered: Any,
) -> Member:
    """Start a broker of the cluster with this store."""
    await prepare(store, Random(7))
    loader = MetadataLoader(store)
    await loader.start()
    view = MutableView(config, ManualClock())
    view.follow(loader)
    broker = broker_image(config.node_id)._replace(**registered)
    controller = Controller(store, loader, view, broker, Random(config.node_id), ask or _nobody, on_failure)
    if start:
        await controller.start()
    return Member(store, loader, controller)


async def until(condition: Callable[[], object]) -> None:
    """Let other tasks run until the condition is true."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0)


Scenario = Callable[[Member], Awaitable[Any]]
Play = Callable[..., Any]


@pytest.fixture
def play() -> Play:
    """Run a scenario with the controller on broker 1. `others` are brokers that are only registered."""

    def run(scenario: Scenario, *, others: int = 0, config: BrokerConfig | None = None) -> Any:
        async def session() -> Any:
            server = MemoryServer()
            member = await join(server, config or BrokerConfig(node_id=1))
            for broker_id in range(2, 2 + others):
                node = znodes.encode_broker(broker_image(broker_id), 0)
                await MemoryStore(server).create(znodes.broker(broker_id), node, ephemeral=True)
            return await scenario(member)

        return asyncio.run(session())

    return run
