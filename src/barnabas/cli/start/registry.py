"""`barnabas start --registry`: runs a schema registry in a thread of the command's process."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress

from barnabas.base.system.signals import stop_this_process
from barnabas.broker.server.run import Companion
from barnabas.cli.registry import require_registry
from barnabas.cli.streams import report
from barnabas.registry.server import RegistryServer, RegistrySettings, claim

logger = logging.getLogger(__name__)


def beside_broker(listen: str, servers_at: Callable[[str], str], tls: str | None = None) -> Companion:
    """Bind the registry's address now. Return a function that runs the registry beside a broker.

    The returned function gets the broker, and returns a context manager: the registry runs until its end.

    Args:
        listen: HOST:PORT of the registry.
        servers_at: gets the broker's address, and returns it with the login for it (`Servers`).
        tls: PEM file with a key and its certificate, to serve HTTPS and require logins; None for HTTP without
            logins.

    Raises:
        ConfigError: the address is in use, or the registry is not installed.
    """
    running = registry_at(listen, servers_at, tls)
    return lambda broker: running(broker.address)


def registry_at(
    listen: str, servers_at: Callable[[str], str], tls: str | None = None
) -> Callable[[str], AbstractContextManager[None]]:
    """Bind the address `listen` (HOST:PORT) now. Return a function that runs a registry there.

    The returned function gets the addresses of brokers (HOST:PORT,...), and returns a context manager: the
    registry runs until its end.

    Args:
        servers_at: gets the brokers' addresses, and returns them with the login for them (`Servers`).
        tls: PEM file with a key and its certificate, to serve HTTPS and require logins; None for HTTP without
            logins.

    Raises:
        ConfigError: the address is in use, or the registry is not installed.
    """
    require_registry()
    claimed = claim(listen)

    @contextmanager
    def run(servers: str) -> Iterator[None]:
        settings = RegistrySettings(servers_at(servers), listen, tls=tls, login=tls is not None)
        server = RegistryServer(settings, claimed, on_ready=_announce, on_failure=_give_up)
        server.start()
        try:
            yield
        finally:
            server.stop()

    return run


def _announce(url: str) -> None:
    with suppress(OSError):  # it has no reader: the registry serves all the same
        report(f"registry {url}")


def _give_up(error: BaseException) -> None:
    logger.error("the schema registry has failed, so the brokers stop, too: %s", error)
    stop_this_process()
