"""The log of schemas when it cannot be opened."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.client import Admin
from barnabas.client.errors import SettingError
from barnabas.client.servers import Servers
from barnabas.registry.log import SchemasLog

NOWHERE = "127.0.0.1:1"


def test_a_log_that_was_not_opened_can_be_closed():
    async def scenario():
        await SchemasLog(NOWHERE, "schemas", lambda key, value: None, Admin(NOWHERE)).close()

    asyncio.run(scenario())


def test_a_setting_that_librdkafka_rejects_is_an_error_of_settings():
    async def scenario():
        servers = Servers(NOWHERE, {"security.protocol": "carrier pigeon"})
        log = SchemasLog(servers, "schemas", lambda key, value: None, Admin(NOWHERE))
        with pytest.raises(SettingError, match="librdkafka rejects the settings"):
            await log.open()
        await log.close()

    asyncio.run(scenario())
