"""Signals to a running broker, and to one that is stopping."""

import asyncio
import logging
import os
import signal

from barnabas.broker.server.signals import StopSignals


def test_the_first_stops_the_second_warns_and_the_third_ends_the_process(caplog):
    ended = []

    async def scenario():
        signals = StopSignals(ended.append)
        os.kill(os.getpid(), signal.SIGTERM)
        await signals.wait()
        signals.receive(signal.SIGINT)
        assert ended == []
        signals.receive(signal.SIGINT)

    with caplog.at_level(logging.INFO):
        asyncio.run(scenario())
    assert ended == [128 + signal.SIGINT]
    told = [
        record.getMessage() for record in caplog.records if record.name == "barnabas.broker.server.signals"
    ]
    assert told[0] == "SIGTERM: stopping"
    assert "stopping already; another signal ends the process" in told[1]
    assert "ending without a clean stop" in told[2]
