"""Logs a warning while no broker answers, because librdkafka retries silently."""

from __future__ import annotations

import logging
import time
from typing import Any

import confluent_kafka

logger = logging.getLogger(__name__)

#: seconds without a further warning after one was logged
_QUIET_S = 60.0

_CODES = confluent_kafka.KafkaError
_CAUSES = frozenset({_CODES._TRANSPORT, _CODES._RESOLVE, _CODES._AUTHENTICATION, _CODES._SSL})


class OutageWarning:
    """An `error_cb` for librdkafka that logs at most one warning a minute while no broker can be reached.

    Args:
        bootstrap_servers: the addresses that the warning names.
        consequence: end of the warning: what waits until a broker answers, and for how long.
    """

    def __init__(self, bootstrap_servers: str, consequence: str) -> None:
        self._servers = bootstrap_servers
        self._consequence = consequence
        self._cause = ""
        self._quiet_until = 0.0

    def __call__(self, error: Any) -> None:
        if error.code() in _CAUSES:
            self._cause = _cause(error.str())
        elif error.code() == _CODES._ALL_BROKERS_DOWN and time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_S
            logger.warning("no broker answers at %s%s: %s", self._servers, self._cause, self._consequence)


def _cause(text: str) -> str:
    """Return the reason in librdkafka's error text, such as " (connection refused)"; empty if there is none.

    The text is "HOST:PORT/1: Connect to ... failed: Connection refused (after 0ms in state CONNECT)".
    """
    reason = text.partition(" (after ")[0].rpartition(": ")[2].strip()
    return f" ({reason[:1].lower()}{reason[1:]})" if reason else ""
