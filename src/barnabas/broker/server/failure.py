"""Stops a broker after the failure of a part that it needs."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.tasks import IS_VITAL
from barnabas.base.text import logger_of
from barnabas.base.types import BrokerId
from barnabas.broker.server.monitoring.health import Health

log = logger_of(__name__)


class BrokerFailedError(BarnabasError):
    """A part that the broker needs has failed, so the broker must stop.

    If the broker continued, it could serve state that the cluster has not decided.
    """


class Failure:
    """Stops the broker after a failure: `failed` raises an error in the task that runs the broker.

    Args:
        node_id: id of the broker, for the log.
        health: health of the broker; it shows the reason of the failure.
    """

    def __init__(self, node_id: BrokerId, health: Health) -> None:
        self._node_id = node_id
        self._health = health
        self._failed = asyncio.Event()
        self._reason = ""

    def fail(self, reason: str) -> None:
        """Stop the broker because of a failure: log `reason`, and let `failed` raise BrokerFailedError.

        If a failure was already reported, do nothing.
        """
        if not self._failed.is_set():
            self._reason = self._health.failure = reason
            self._failed.set()
            log.critical("broker %d has to stop: %s", self._node_id, reason)

    def metadata_failed(self, error: Exception) -> None:
        """Stop the broker, because a part of it could not apply a change of the metadata.

        If the broker continued, it could act on outdated metadata, for example as the leader of a partition
        that another broker leads now.

        Args:
            error: the exception of the part. The reason in the log contains its text.
        """
        self.fail(f"a change of the metadata could not be applied ({type(error).__name__}: {error})")

    def registration_failed(self, error: Exception) -> None:
        """Report that this broker cannot register again, because another broker uses its id."""
        self.fail(f"it cannot register again: {error}")

    def handle_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Log an error of a callback, timer or task of the event loop.

        If the broker cannot work without the task (`start_task` with `is_vital`), also stop the broker. This
        is the exception handler of an event loop that runs one broker.
        """
        loop.default_exception_handler(context)
        if context.get(IS_VITAL):
            error = context["exception"]
            self.fail(f"{context['message']} ({type(error).__name__}: {error})")

    async def failed(self) -> None:
        """Wait for the first failure. Without a failure this never returns.

        Raises:
            BrokerFailedError: a failure has been reported; the text has the reason.
        """
        await self._failed.wait()
        raise BrokerFailedError(self._reason)
