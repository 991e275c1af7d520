"""Runs a console until it is cancelled or a signal arrives."""

from __future__ import annotations

import asyncio
import gc
import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from barnabas.base import http_log
from barnabas.base.system.own_names import own_names
from barnabas.base.system.signals import run_until_signal
from barnabas.base.system.sockets import claim_address
from barnabas.client.servers import servers_of
from barnabas.console.view import ClusterView, Privacy

DEFAULT_LISTEN = "127.0.0.1:8080"
_SHUTDOWN_S = 2.0
_COLLECTED_AFTER = 100_000


@dataclass(frozen=True, slots=True)
class ConsoleSettings:
    """Settings of a console.

    Attributes:
        servers: addresses of brokers, with the settings of the connections.
        allow_writes: whether pages may change the cluster.
        privacy: the parts of records that the console hides.
        users: passwords by user. None if a link with a token gives access instead.
        tls: certificate and key for HTTPS; None for HTTP.
        behind_proxy: whether a proxy checks the Host header and speaks HTTPS.
        metrics: URLs of the brokers' pages of metrics.
        registry_login: whether to log in to the registry with the login for the cluster.
    """

    servers: str
    listen: str = DEFAULT_LISTEN
    registry: str | None = None
    allow_writes: bool = False
    privacy: Privacy = field(default_factory=Privacy)
    users: Mapping[str, str] | None = field(default=None, repr=False)
    tls: ssl.SSLContext | None = None
    behind_proxy: bool = False
    registry_login: bool = False
    metrics: tuple[str, ...] = ()


def claim(listen: str) -> socket.socket:
    """Return a socket that is bound to `listen` (HOST:PORT), for a later `serve`.

    Raises ConfigError if `listen` is not an address of this machine, or is in use.
    """
    return claim_address(listen, "the console", DEFAULT_LISTEN)


def is_loopback(listen: str) -> bool:
    """Whether only clients on this machine can reach the address."""
    host = listen.rpartition(":")[0].strip("[]")
    return host in ("", "localhost", "::1") or host.startswith("127.")


async def serve(settings: ConsoleSettings, claimed: socket.socket, on_ready: Callable[[str], None]) -> None:
    """Serve the console at the bound address until the task is cancelled.

    When the console is ready, `on_ready` is called with the URL for a browser.

    Raises:
        BarnabasError: the settings for the cluster are invalid.
    """
    from aiohttp import web

    from barnabas.console.app import Console
    from barnabas.console.browser_access import BrowserAccess
    from barnabas.console.schemas import Schemas

    host, port = claimed.getsockname()[:2]
    host = f"[{host}]" if ":" in host else host
    scheme = "https" if settings.tls else "http"
    browser_access = BrowserAccess(
        None if settings.behind_proxy else own_names(claimed, scheme), settings.users
    )
    login = servers_of(settings.servers, {}) if settings.registry_login else None
    registry = Schemas(settings.registry, login) if settings.registry else None
    view = ClusterView(
        settings.servers, decode=registry.decode if registry else None, privacy=settings.privacy
    )
    console = Console(
        view, browser_access, registry, allow_writes=settings.allow_writes, metrics=settings.metrics
    )
    runner = web.AppRunner(console.app(), access_log=None, logger=http_log.log, shutdown_timeout=_SHUTDOWN_S)
    try:
        await runner.setup()
        await web.SockSite(runner, claimed, ssl_context=settings.tls).start()
        on_ready(f"{scheme}://{host}:{port}/{browser_access.link}")
        await asyncio.get_running_loop().create_future()
    finally:
        await runner.cleanup()


def run(settings: ConsoleSettings, on_ready: Callable[[str], None]) -> None:
    """Run `serve` on a new event loop, until SIGTERM or SIGINT.

    Raises:
        BarnabasError: the settings for the cluster are invalid, or the address is in use.
    """
    # The decoded responses of a large cluster are a million objects that live for some seconds. By default,
    # Python collects garbage after each 700 new objects. That takes longer than to decode the responses.
    gc.set_threshold(_COLLECTED_AFTER, 20, 100)
    with claim(settings.listen) as claimed:
        run_until_signal(serve(settings, claimed, on_ready))
