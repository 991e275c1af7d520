"""A broker's HTTP server for monitoring: ``/metrics``, ``/healthz`` and ``/readyz``."""

from __future__ import annotations

from collections.abc import AsyncIterator

from barnabas.base.environment.environment import Environment
from barnabas.base.http_responder import Responder, Short, parse_listener
from barnabas.base.text import logger_of
from barnabas.broker.server.monitoring.health import Health
from barnabas.broker.server.monitoring.pages import Pages
from barnabas.broker.server.monitoring.sources import Sources
from barnabas.broker.server.requests.long_work import LongWork

log = logger_of(__name__)

_NOT_YET: Short = (503, "the broker starts: there are no metrics yet")


class Monitor:
    """Serves, by HTTP, the broker's health after `start`, and also its metrics after `begin`.

    Args:
        listener: HOST:PORT to listen on.
        environment: provides the network. For the metrics, it also provides the sizes of the volumes, and the
            resources that the process uses.
        health: health of the broker.
        long_work: lets the event loop serve requests while a long page is made.

    Raises:
        ConfigError: `listener` is not an address.
    """

    def __init__(self, listener: str, environment: Environment, health: Health, long_work: LongWork) -> None:
        self._environment = environment
        self._health = health
        self._long_work = long_work
        self._pages: Pages | None = None
        self.responder = Responder(*parse_listener(listener), environment.network)

    async def start(self) -> None:
        """Bind the address, and start to serve health.

        Raises:
            ConfigError: the address cannot be bound.
        """
        self.responder.bind()
        await self.responder.start(
            {
                "/healthz": lambda: (200, "the event loop answers"),
                "/readyz": self._ready,
                "/metrics": self._metrics,
                "/metrics/partitions": self._partitions,
            }
        )
        log.info("serving metrics at %s/metrics", self.responder.url)

    def begin(self, sources: Sources) -> None:
        """Start to serve metrics, with values from `sources`."""
        self._pages = Pages(sources, self._long_work, self._environment)

    async def stop(self) -> None:
        """Stop the server."""
        await self.responder.stop()
        if self._pages is not None:
            await self._pages.stop()

    def _ready(self) -> Short:
        reasons = self._health.reasons()
        return (503, "\n".join(f"not ready: {reason}" for reason in reasons)) if reasons else (200, "ready")

    def _metrics(self) -> Short | AsyncIterator[str]:
        return _NOT_YET if self._pages is None else self._pages.broker()

    def _partitions(self) -> Short | AsyncIterator[str]:
        return _NOT_YET if self._pages is None else self._pages.partitions()
