"""The admin handlers on a broker without sockets or logs: only metadata, controller and settings."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest
from simulation.clocks import ManualClock
from simulation.memory_store import MemoryServer, MemoryStore
from tests.unit.broker.server.handlers.parts import others_than

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.randomness import system_random
from barnabas.broker.awaitables import resolve
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import Controller
from barnabas.broker.logins.delegation_tokens import TokenKeys
from barnabas.broker.metadata import ClusterImage, ImageDelta, MetadataLoader, znodes
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage
from barnabas.broker.metadata.opening import prepare
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.forwarding import Forwarding
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.serving import served_apis
from barnabas.broker.server.to_controller import ToController
from barnabas.broker.view import MutableView
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.framing import RequestHeader
from barnabas.kafka.security.acls import Authorizer
from barnabas.kafka.security.principal import ANONYMOUS, Principal


class FakeConnection:
    connection_id = 1
    client_host = "127.0.0.1"
    listener = "PLAINTEXT"
    client_software_name = client_software_version = ""

    def __init__(self, principal: Principal = ANONYMOUS) -> None:
        self.principal = principal

    def close(self, reason: str) -> None:
        raise AssertionError(f"closed: {reason}")


class AdminBroker:
    """The parts of a broker that the admin handlers use."""

    def __init__(self, config: BrokerConfig, authorizer: Authorizer | None = None) -> None:
        self.node_id = config.node_id
        self.server = MemoryServer()
        self.store = MemoryStore(self.server)
        #: the sessions of the other live brokers
        self.others: list[MemoryStore] = []
        self.loader = MetadataLoader(self.store)
        endpoint = BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092)
        broker = BrokerImage(config.node_id, (endpoint,))
        absent: Any = None
        self.clock = ManualClock()
        self.view = MutableView(config, self.clock)
        self.view.follow(self.loader)
        secret = config.delegation_token_secret_key
        self.token_keys = None if secret is None else TokenKeys(secret)
        self.controller = Controller(
            self.store,
            self.loader,
            self.view,
            broker,
            Random(config.node_id),
            absent,
            token_keys=self.token_keys,
        )
        self.quotas = ClientQuotas(lambda: self.now)
        #: the time by which use is measured, in seconds
        self.now = 0.0
        self.loader.subscribe(self._take_quotas)
        connection = FakeConnection()
        to_controller = ToController(self.view, absent, absent, request_timeout=30.0)
        own = (
            self.view,
            self.loader,
            self.controller,
            LongWork(Environment.of_system()),
            self.quotas,
            Forwarding(self.view, to_controller, self.loader, connection),
            authorizer,
            AuditTrail(config, Environment.of_system()),
            self.token_keys,
        )
        self.served = served_apis([*own, *others_than(own)])

    def _take_quotas(self, delta: ImageDelta) -> None:
        for entity in delta.client_quotas:
            self.quotas.set(entity, delta.after.client_quotas.get(entity, {}))

    @property
    def image(self) -> ClusterImage:
        return self.loader.image

    @property
    def config(self) -> BrokerConfig:
        return self.view.config

    async def start(self, others: int) -> None:
        await prepare(self.store, system_random())
        for broker_id in range(2, 2 + others):
            other = BrokerImage(broker_id, (BrokerEndpoint("INTERNAL", "127.0.0.1", 9000 + broker_id),))
            node = znodes.encode_broker(other, 0)
            self.others.append(MemoryStore(self.server))
            await self.others[-1].create(znodes.broker(broker_id), node, ephemeral=True)
        await self.loader.start()
        await self.controller.start()

    async def ask(self, request: Any, version: int | None = None, principal: Principal = ANONYMOUS) -> Any:
        """Return the answer that a client gets. Both messages are encoded and decoded."""
        cls = type(request)
        version = cls.versions[1] if version is None else version
        served = self.served[cls.api_key]
        api = served.api
        assert api.versions[0] <= version <= api.versions[1]
        request = decode(cls, version, encode(request, version))
        context = RequestContext(RequestHeader(cls.api_key, version, 1, "test"), FakeConnection(principal))
        response = await resolve(served.handle(context, request))
        assert response is not None
        return decode(api.response, version, encode(response, version))


Scenario = Callable[[AdminBroker], Awaitable[Any]]
Play = Callable[..., Any]


@pytest.fixture
def play() -> Play:
    """Run a scenario with broker 1. `others` live, too, with a listener of another name."""

    def run(scenario: Scenario, *, others: int = 0, config: BrokerConfig | None = None) -> Any:
        async def session() -> Any:
            broker = AdminBroker(config or BrokerConfig(node_id=1))
            await broker.start(others)
            return await scenario(broker)

        return asyncio.run(session())

    return run
