"""The sessions of the served store, in virtual time."""

from __future__ import annotations

import asyncio
from random import Random

from simulation.virtual_time import VirtualProcess, run_virtual

from barnabas.broker.metadata.durable_tree import DurableTree
from barnabas.broker.metadata.server.sessions import SessionTracker

TICK = 1.0
#: seconds; a session timeout
TIMEOUT = 6.0


def test_server_that_stood_still_ends_only_the_session_whose_client_stays_silent() -> None:
    async def scenario() -> None:
        server = VirtualProcess("server")

        async def begin() -> SessionTracker:
            return SessionTracker(DurableTree(lambda changes: None), Random(1), TICK)

        tracker = await server.run(begin())
        awake, silent = tracker.begin(TIMEOUT), tracker.begin(TIMEOUT)
        assert awake is not None and silent is not None
        server.pause()
        await asyncio.sleep(10 * TIMEOUT)
        server.resume()
        # The first check advances the clock by two ticks, and the others by one: 2 + 4 are not too much yet.
        await asyncio.sleep(4.5 * TICK)
        assert tracker.resume(awake.id, awake.password) is awake
        assert tracker.resume(silent.id, b"wrong") is None
        await asyncio.sleep(TICK)
        assert tracker.resume(silent.id, silent.password) is None
        assert tracker.resume(awake.id, awake.password) is awake
        await server.run(tracker.close())

    run_virtual(scenario())


def test_session_ends_when_its_client_has_sent_nothing_for_the_session_timeout() -> None:
    async def scenario() -> None:
        tracker = SessionTracker(DurableTree(lambda changes: None), Random(1), TICK)
        session = tracker.begin(TIMEOUT)
        assert session is not None
        await asyncio.sleep(TIMEOUT - TICK / 2)
        tracker.heard(session)
        await asyncio.sleep(TIMEOUT)
        assert tracker.resume(session.id, session.password) is session
        await asyncio.sleep(TIMEOUT + TICK)
        assert tracker.resume(session.id, session.password) is None
        await tracker.close()

    run_virtual(scenario())
