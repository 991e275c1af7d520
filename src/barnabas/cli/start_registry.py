"""`barnabas start --registry`: a schema registry in a thread of the broker's process."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from barnabas.cli.registry import require_registry
from barnabas.cli.streams import report
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.server.broker import Broker
from barnabas.server.run import Companion
from barnabas.system.signals import stop_this_process

logger = logging.getLogger(__name__)


def beside_broker(listen: str) -> Companion:
    """What runs the registry, at an address that is taken at once.

    Raises:
        ConfigError: the address is in use, or the registry is not installed.
    """
    require_registry()
    claimed = claim(listen)

    @contextmanager
    def run(broker: Broker) -> Iterator[None]:
        settings = RegistrySettings(broker.address, listen)
        server = RegistryServer(settings, claimed, on_ready=_announce, on_failure=_give_up)
        server.start()
        try:
            yield
        finally:
            server.stop()

    return run


def _announce(url: str) -> None:
    with suppress(OSError):  # nobody reads it: the registry serves all the same
        report(f"registry {url}")


def _give_up(error: BaseException) -> None:
    logger.error("the schema registry has failed, so the broker stops, too: %s", error)
    stop_this_process()
