"""Operations that are repeated when the connection to the metadata store breaks."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
from simulation.virtual_time import run_virtual

from barnabas.broker.metadata.reconnection import persistently
from barnabas.broker.metadata.store import SessionState, StoreUnavailableError

SESSION_TIMEOUT = 3.0


def persist(attempt):
    store = SimpleNamespace(
        session_timeout=SESSION_TIMEOUT,
        state=SessionState.CONNECTED,
        on_state=lambda listener: lambda: None,
    )
    return run_virtual(persistently(store, attempt))


def test_what_has_taken_longer_than_the_session_timeout_is_begun_again_when_it_breaks():
    calls = []

    async def attempt():
        calls.append(None)
        if len(calls) == 1:
            await asyncio.sleep(2 * SESSION_TIMEOUT)
            raise StoreUnavailableError("the connection broke")
        return "read"

    assert persist(attempt) == "read"


def test_a_store_that_is_away_for_longer_than_the_session_timeout_is_given_up():
    calls = []

    async def attempt():
        calls.append(asyncio.get_running_loop().time())
        await asyncio.sleep(1)
        raise StoreUnavailableError("the connection broke")

    with pytest.raises(StoreUnavailableError):
        persist(attempt)
    assert SESSION_TIMEOUT < calls[-1] - calls[0] <= 2 * SESSION_TIMEOUT
