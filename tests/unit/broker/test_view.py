"""The view of a broker's current state."""

from __future__ import annotations

import asyncio
from random import Random

from simulation.memory_store import MemoryStore
from tests.views import view_of

from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller.registration import Registration
from barnabas.broker.metadata import ImageDelta, MetadataLoader, znodes
from barnabas.broker.metadata.image import BrokerEndpoint, BrokerImage
from barnabas.broker.metadata.opening import prepare
from barnabas.broker.view import NOT_REGISTERED


def test_listeners_of_the_loader_find_the_new_image_and_settings_in_the_view() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        loader = MetadataLoader(store)
        await loader.start()
        view = view_of(config=BrokerConfig(node_id=1, message_max_bytes=5000))
        view.follow(loader)
        assert view.image is loader.image
        seen = []

        def listener(delta: ImageDelta) -> None:
            assert view.image is delta.after
            seen.append((view.config.message_max_bytes, view.topic_config("t").max_message_bytes))

        loader.subscribe(listener)
        path = znodes.broker_config("1")
        await store.create(path, znodes.encode_config({"message.max.bytes": "7000"}))
        await loader.synced()
        await store.delete(path)
        await loader.synced()
        assert seen == [(7000, 7000), (5000, 5000)]
        await loader.stop()

    asyncio.run(scenario())


def test_settings_that_were_stored_before_the_view_followed_hold() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        await store.create(znodes.broker_config("1"), znodes.encode_config({"message.max.bytes": "7000"}))
        loader = MetadataLoader(store)
        await loader.start()
        view = view_of()
        view.follow(loader)
        assert view.config.message_max_bytes == 7000
        await loader.stop()

    asyncio.run(scenario())


def test_each_registration_sets_the_broker_epoch() -> None:
    async def scenario() -> None:
        store = MemoryStore()
        await prepare(store, Random(1))
        view = view_of()
        assert view.broker_epoch == NOT_REGISTERED
        registration = Registration(store, BrokerImage(1, (BrokerEndpoint("PLAINTEXT", "a", 1),)), view)
        await registration.register()
        first = view.broker_epoch
        assert first == registration.epoch != NOT_REGISTERED
        registration.request_new_epoch()
        await registration.register()
        assert view.broker_epoch == registration.epoch > first
        await registration.stop()

    asyncio.run(scenario())
