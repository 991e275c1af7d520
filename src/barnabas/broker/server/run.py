"""Runs a broker in this process until a signal (`serve`, `run`), or in its own thread (`BrokerServer`)."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Self

from barnabas.base.environment.environment import Environment
from barnabas.base.system import event_loop, limits
from barnabas.base.system.signals import handle_reload_signal
from barnabas.base.tasks import first, start_task
from barnabas.base.text import logger_of
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata.bootstrap import NO_USERS, Users
from barnabas.broker.server.broker import Broker
from barnabas.broker.server.garbage import collect_all_when_idle, short_collections
from barnabas.broker.server.network.busy_polling import BusyPolling
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.signals import StopSignals

#: the limit that is requested where the system sets none
ENOUGH_FILES = 65_536
#: with fewer files, a few hundred partitions and clients reach the limit
FEW_FILES = 4096

#: Seconds for which a busy thread can keep the GIL while the event loop waits for it. Such threads decode
#: large requests and encode large responses. Python's default is 0.005, and each turn of the loop may wait
#: that long.
SWITCH_INTERVAL = 0.001

log = logger_of(__name__)

#: A companion: runs beside a broker for as long as it serves, as its client. Stopping it may take a while.
Companion = Callable[[Broker], AbstractContextManager[object]]


async def serve(
    config: BrokerConfig,
    on_ready: Callable[[Broker], None] | None = None,
    beside: Companion | None = None,
    environment: Environment | None = None,
    users: Users = NO_USERS,
) -> None:
    """Run a broker on the current event loop until SIGTERM or SIGINT, then stop it cleanly.

    The process should do little else. The event loop can keep the GIL while it polls for requests, and other
    threads of the process then do not run.

    Args:
        config: settings of the broker.
        on_ready: called with the broker when it serves clients.
        beside: called with the broker after `on_ready`; returns a context manager. `serve` enters it then,
            and exits it in another thread before the broker stops.
        environment: environment of the broker; by default the operating system.
        users: users to create if the cluster does not have them.

    Raises:
        ConfigError: the broker cannot do what a setting requires; for example, another process uses an
            address or a data folder.
        StoreError: the metadata store cannot be used.
        BrokerFailedError: a part that the broker needs has failed, and the broker was stopped.
    """
    _raise_file_limit()
    signals = StopSignals()
    loop = asyncio.get_running_loop()
    busy_polling = BusyPolling(loop.call_soon) if event_loop.turns_are_cheap(loop) else None
    broker = Broker(config, environment or Environment.of_system(), busy_polling=busy_polling, users=users)
    loop.set_exception_handler(broker.handle_loop_error)
    with short_switches(), short_collections() as collections:
        try:
            await broker.start()
            handle_reload_signal(loop, broker.reload)
            log.info("running in process %d", os.getpid())
            collections.begin()
            if on_ready is not None:
                on_ready(broker)
            silent_for = broker.connections.silent_for
            collecting = start_task(collect_all_when_idle(collections, silent_for), "garbage collection")
            with ExitStack() as companion:
                if beside is not None:
                    companion.enter_context(beside(broker))
                try:
                    await first(signals.wait(), broker.failed())
                finally:
                    collecting.cancel()
                    await asyncio.to_thread(companion.close)
        finally:
            await broker.stop()


@contextmanager
def short_switches() -> Iterator[None]:
    """Within this context, a busy thread gives up the GIL after 1 ms, so that the event loop waits less."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def run(
    config: BrokerConfig,
    on_ready: Callable[[Broker], None] | None = None,
    beside: Companion | None = None,
    users: Users = NO_USERS,
) -> None:
    """Run a broker on a new event loop until SIGTERM or SIGINT, then stop it cleanly.

    The arguments, and the errors that the function raises, are those of `serve`.
    """
    event_loop.run(serve(config, on_ready, beside, users=users))


def _raise_file_limit() -> None:
    """Raise the process's limit of open files as far as possible. Log a warning if the limit is low.

    The broker needs one file for each connection and each log segment.
    """
    try:
        allowed = limits.raise_open_files(ENOUGH_FILES)
    except (OSError, ValueError) as error:
        allowed = limits.open_files()
        log.debug("the limit of open files stays at %s: %s", allowed, error)
    if allowed is not None and allowed < FEW_FILES:
        log.warning(
            "this process may open only %d files, and each connection and each segment takes one: "
            "raise the limit (ulimit -Hn) to %d or more",
            allowed,
            FEW_FILES,
        )


class BrokerServer:
    """Runs a broker in its own thread, with its own event loop. Use it in tests, or to embed a broker.

    It is a context manager, which starts and stops the broker. Other threads may use only the methods and
    properties of this class, not the parts of the broker.

    Args:
        config: settings of the broker.
        environment: environment of the broker; by default the operating system.
        users: users to create if the cluster does not have them.
    """

    def __init__(
        self, config: BrokerConfig, environment: Environment | None = None, users: Users = NO_USERS
    ) -> None:
        self._config = config
        self._users = users
        self._environment = environment or Environment.of_system()
        self._started = threading.Event()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop
        self._stopping: asyncio.Event
        self._broker: Broker
        self._failure: BaseException | None = None

    @property
    def bootstrap_servers(self) -> str:
        """Advertised ``host:port`` of the first listener."""
        return self._broker.address

    @property
    def bound(self) -> Sequence[Endpoint]:
        """Bound addresses in the order of ``listeners``, with the real port in place of port 0."""
        return self._broker.bound

    @property
    def metrics_url(self) -> str | None:
        """URL of metrics and health, such as ``http://127.0.0.1:9404``; None if the settings disable them."""
        monitor = self._broker.monitor
        return None if monitor is None else monitor.responder.url

    def start(self) -> Self:
        """Start the broker, and wait until it serves clients.

        Raises:
            ConfigError: the broker cannot do what a setting requires.
            StoreError: the metadata store cannot be used.
            BrokerFailedError: a part that the broker needs has failed.
        """
        self._thread = threading.Thread(target=self._run, name="barnabas-broker", daemon=True)
        self._thread.start()
        self._started.wait()
        if self._failure is not None:
            self._thread.join()
            self._thread = None
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop the broker cleanly, and wait until it has stopped. A second call does nothing.

        Raises:
            BrokerFailedError: the broker had stopped by itself, because a part that it needs has failed.
        """
        if self._thread is None:
            return
        if self._thread.is_alive():
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._thread = None
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=event_loop.new_event_loop) as runner:
                runner.run(self._serve())
        except BaseException as error:
            self._failure = error
        finally:
            self._started.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self._broker = Broker(self._config, self._environment, users=self._users)
        self._loop.set_exception_handler(self._broker.handle_loop_error)
        try:
            await self._broker.start()
            self._started.set()
            await first(self._stopping.wait(), self._broker.failed())
        finally:
            await self._broker.stop()
