"""A broker of a test's cluster, in a thread of this process."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Self

from barnabas.base.environment.clock import SystemClock
from barnabas.base.environment.environment import Environment
from barnabas.base.environment.randomness import system_random
from barnabas.base.system import event_loop
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.broker import Broker
from barnabas.testing.faults import FillableDisk, KillableThreads, RoutedNetwork
from barnabas.testing.running_broker import BrokerSettings
from barnabas.testing.shared_store import SharedServer, SharedStore

#: seconds in which a killed broker's tasks must end; they can no longer reach anything outside
_DYING = 1.0


class ThreadBroker:
    """A broker with its own event loop and thread. It shares a metadata store with other brokers.

    A kill disconnects the broker from its files, connections and store at one moment. After that, code of the
    broker that still runs has no effect outside.
    """

    def __init__(self, settings: BrokerSettings, server: SharedServer) -> None:
        self._settings = settings
        self._server = server
        self._disk = FillableDisk()
        self._threads = KillableThreads()
        self._network = RoutedNetwork(settings.routes)
        self._store: SharedStore | None = None
        self._started = threading.Event()
        self._running = threading.Event()  # cleared: paused
        self._running.set()
        self._failure: BaseException | None = None
        self._is_killed = False
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._broker: Broker
        self._thread = threading.Thread(
            target=self._run, name=f"barnabas-broker-{settings.broker_id}", daemon=True
        )

    def begin(self) -> Self:
        """Start the broker. `wait_ready` waits until it serves."""
        self._thread.start()
        return self

    def wait_ready(self) -> None:
        """Wait until the broker serves. If the broker did not start, raise its error."""
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            raise self._failure

    def stop(self) -> None:
        self.resume()
        if self._thread.is_alive():
            self._call(self._stop_soon)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def kill(self) -> None:
        self._is_killed = True
        self.resume()
        if self._thread.is_alive():
            self._call(self._die)
        self._thread.join()

    def pause(self) -> None:
        paused = threading.Event()

        def stand_still() -> None:
            paused.set()
            self._running.wait()
            if self._is_killed:
                self._die()

        self._running.clear()
        self._call(stand_still)
        paused.wait()

    def resume(self) -> None:
        self._running.set()

    def expire_session(self) -> None:
        if self._store is not None:
            self._store.expire()

    def fill_disk(self, is_full: bool) -> None:
        self._disk.is_full = is_full

    def _call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # the broker has ended by itself
            self._loop.call_soon_threadsafe(function)

    def _stop_soon(self) -> None:
        self._stopping.set()

    def _die(self) -> None:
        """Kill the broker. This runs on its event loop, so that no task there responds afterwards."""
        self._disk.die()
        self._network.die()
        self._broker.connections.close_all()
        if self._store is not None:
            self._store.abandon()
        self._loop.set_exception_handler(lambda loop, context: None)
        self._stopping.set()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=event_loop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            if not self._is_killed:
                self._failure = error
        finally:
            if self._is_killed:
                self._threads.bury()
                self._disk.bury()
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        environment = Environment(
            clock=SystemClock(),
            filesystem=self._disk,
            blocking=self._threads,
            network=self._network,
            random=system_random(),
            open_store=self._open_store,
        )
        broker = self._broker = Broker(BrokerConfig.from_text(self._settings.settings), environment)
        ends = [asyncio.ensure_future(wait) for wait in (self._stopping.wait(), broker.failed())]
        try:
            await broker.start()
            self._started.set()
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if not self._is_killed:
                for end in done:
                    end.result()
        finally:
            for end in ends:
                end.cancel()
            if self._is_killed:
                await self._end_tasks()
            else:
                await broker.stop()

    async def _open_store(self) -> SharedStore:
        self._store = SharedStore(self._server)
        return self._store

    async def _end_tasks(self) -> None:
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=_DYING)
        # Connections that were being opened or accepted meanwhile.
        self._network.die()
        self._broker.connections.close_all()
        await asyncio.sleep(0)
