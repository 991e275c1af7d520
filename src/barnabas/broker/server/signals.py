"""Handles SIGTERM and SIGINT: the first signal stops the broker cleanly, the third one ends the process."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable

from barnabas.base.system.signals import handle_stop_signals
from barnabas.base.text import logger_of

log = logger_of(__name__)


class StopSignals:
    """Handles SIGTERM and SIGINT on the running event loop. The constructor installs the handlers.

    Args:
        end_process: called with an exit code to end the process without a clean stop.
    """

    def __init__(self, end_process: Callable[[int], object] = os._exit) -> None:
        self._end_process = end_process
        self._received = 0
        self._stopping = asyncio.Event()
        handle_stop_signals(asyncio.get_running_loop(), self.receive)

    async def wait(self) -> None:
        """Wait until the process has received the first signal."""
        await self._stopping.wait()

    def receive(self, number: int) -> None:
        """Handle the signal with this number: the first call ends `wait`, and the second logs a warning.

        Each later call ends the process without a clean stop, with exit code 128 plus the number.
        """
        self._received += 1
        name = signal.Signals(number).name
        self._stopping.set()
        if self._received == 1:
            log.info("%s: stopping", name)
        elif self._received == 2:
            log.warning("%s: stopping already; another signal ends the process without a clean stop", name)
        else:
            log.warning("%s: ending without a clean stop; the next start recovers the logs", name)
            self._end_process(128 + number)
