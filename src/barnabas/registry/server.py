"""Runs a schema registry: in this process until a signal (`run`), or in a thread (`RegistryServer`)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from barnabas.base import http_log
from barnabas.base.system.own_names import own_names
from barnabas.base.system.signals import run_until_signal
from barnabas.base.system.sockets import claim_address

DEFAULT_TOPIC = "_schemas"
DEFAULT_LISTEN = "127.0.0.1:8081"

#: seconds in which open requests may end when a registry stops
_SHUTDOWN_S = 5.0


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Settings of a schema registry: its brokers, its address, its topic, and who may use it.

    Attributes:
        bootstrap_servers: addresses of the brokers to connect to first: HOST:PORT,HOST:PORT.
        listen: HOST:PORT at which the registry accepts HTTP connections.
        topic: the topic that stores the registry's state.
        compatibility: the default compatibility level, such as BACKWARD (`Level`).
        replication_factor: replication factor of the topic if the registry creates it; None for the brokers'
            default.
        tls: a PEM file with a key and its certificates, for HTTPS; None for HTTP.
        login: whether clients must log in as users of the cluster.
        super_users: users to whom the cluster's ACLs do not apply: they may do everything.
        hosts: additional names of the registry that clients may send in the header ``Host``.
    """

    bootstrap_servers: str
    listen: str = DEFAULT_LISTEN
    topic: str = DEFAULT_TOPIC
    compatibility: str = "BACKWARD"
    replication_factor: int | None = None
    tls: str | None = None
    login: bool = False
    super_users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()


def claim(listen: str) -> socket.socket:
    """Return a socket that is bound to HOST:PORT and does not accept connections yet.

    Raises ConfigError if `listen` is not HOST:PORT, or the address cannot be bound.
    """
    return claim_address(listen, "the registry", DEFAULT_LISTEN)


async def serve(settings: RegistrySettings, claimed: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Run a registry: wait for a broker, replay the topic, then serve requests until the task is cancelled.

    Args:
        claimed: bound socket from `claim`.
        on_ready: called with the URL when the registry serves requests.

    Raises:
        BarnabasError: the topic cannot be used, the broker refuses requests, or a setting is not supported.
    """
    # Imported here: a broker without a registry must not pay for these.
    from aiohttp import web

    from barnabas.client import Admin
    from barnabas.registry.access import ClusterAccess
    from barnabas.registry.log import SchemasLog
    from barnabas.registry.rest.app import build
    from barnabas.registry.rest.origin import own_hosts
    from barnabas.registry.state import State
    from barnabas.registry.tls import TlsFile
    from barnabas.registry.topic import prepare, wait_for_broker
    from barnabas.registry.workers import WORKERS

    servers = settings.bootstrap_servers
    scheme = "http" if settings.tls is None else "https"
    hosts = own_hosts(own_names(claimed, scheme), settings.hosts)
    tls = None if settings.tls is None else TlsFile(settings.tls)
    access = ClusterAccess(servers, settings.super_users) if settings.login else None
    await wait_for_broker(servers)
    admin = Admin(servers)
    await asyncio.to_thread(prepare, admin, settings.topic, settings.replication_factor)
    cluster = await asyncio.to_thread(admin.cluster)
    state = State(settings.compatibility)
    log = SchemasLog(servers, settings.topic, state.replay, admin)
    runner = web.AppRunner(
        build(state, log, cluster.cluster_id or "", access, hosts),
        access_log=None,
        logger=http_log.log,
        auto_decompress=False,
        shutdown_timeout=_SHUTDOWN_S,
    )
    try:
        with WORKERS.in_use():
            if access is not None:
                await access.open()
            await log.open()
            await runner.setup()
            context = None if tls is None else tls.context
            await web.SockSite(runner, claimed, ssl_context=context).start()
            on_ready(_url(claimed, scheme))
            await (asyncio.get_running_loop().create_future() if tls is None else tls.keep_fresh())
    finally:
        await runner.cleanup()
        if access is not None:
            await access.close()
        await log.close()


def run(settings: RegistrySettings, on_ready: Callable[[str], None]) -> None:
    """Run a registry in a new event loop, until SIGTERM or SIGINT.

    `on_ready` is called with the URL when the registry serves requests.

    Raises:
        BarnabasError: the topic cannot be used, the broker refuses requests, a setting is not supported, or
            the address is in use.
    """
    with claim(settings.listen) as claimed:
        run_until_signal(serve(settings, claimed, on_ready))


class RegistryServer:
    """Runs a registry in a separate thread with its own event loop. Brokers and tests use this class.

    Args:
        claimed: bound socket from `claim`. It is closed at the end.
        on_ready: called in that thread with the URL when the registry serves requests.
        on_failure: called in that thread with the error when the registry has failed.
    """

    def __init__(
        self,
        settings: RegistrySettings,
        claimed: socket.socket,
        *,
        on_ready: Callable[[str], None] = lambda url: None,
        on_failure: Callable[[BaseException], None] = lambda error: None,
    ) -> None:
        self._settings = settings
        self._claimed = claimed
        self._on_ready = on_ready
        self._on_failure = on_failure
        self._begun, self._answered = threading.Event(), threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(target=self._run, name="barnabas-registry", daemon=True)
        self._serving: asyncio.Future[None]
        self._failure: BaseException | None = None
        self.url = ""

    def start(self) -> Self:
        """Start the registry, and return before it serves requests."""
        self._thread.start()
        self._begun.wait()
        return self

    def wait_until_ready(self) -> Self:
        """Wait until the registry serves requests. If it fails to start, raise its error."""
        self._answered.wait()
        if self._failure is not None:
            raise self._failure
        return self

    def stop(self) -> None:
        """Stop the registry, and wait for its thread to end. If it has failed, raise its error."""
        if self._thread.is_alive() and self._loop is not None:
            with contextlib.suppress(RuntimeError):  # it has just ended
                self._loop.call_soon_threadsafe(self._serving.cancel)
        self._thread.join()
        if self._failure is not None:
            raise self._failure

    def __enter__(self) -> Self:
        return self.start().wait_until_ready()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            with self._claimed, contextlib.suppress(asyncio.CancelledError):
                asyncio.run(self._serve())
        except BaseException as error:
            self._failure = error
            self._on_failure(error)
        finally:
            self._answered.set()
            self._begun.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._serving = asyncio.ensure_future(serve(self._settings, self._claimed, self._ready))
        self._begun.set()
        await self._serving

    def _ready(self, url: str) -> None:
        self.url = url
        self._answered.set()
        self._on_ready(url)


def _url(listening: socket.socket, scheme: str) -> str:
    host, port = listening.getsockname()[:2]
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
