"""Stalls of the event loop."""

import asyncio
import time

from barnabas.broker.server.monitoring.loop_watch import LoopWatch


def test_a_held_loop_is_seen():
    async def scenario():
        watch = LoopWatch()
        watch.start()
        await asyncio.sleep(0)
        time.sleep(0.25)
        while not watch.stalls:
            await asyncio.sleep(0.01)
        watch.stop()
        return watch

    watch = asyncio.run(scenario())
    assert watch.stalls == 1
    assert 0.15 < watch.stalled < 60
