"""The interface of one broker in a test's cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings with which one broker is started.

    Attributes:
        broker_id: ``node.id``.
        settings: all settings of the broker, with Kafka's names.
        routes: maps the port of each other broker to the port of a TCP proxy in front of that broker. With
            these proxies the test can cut the network between brokers.
    """

    broker_id: int
    settings: Mapping[str, str]
    routes: Mapping[int, int]


class RunningBroker(Protocol):
    """A running broker. It cannot be used after `stop` or `kill`: a restart makes a new one."""

    def stop(self) -> None:
        """Stop the broker cleanly, and wait for its end."""

    def kill(self) -> None:
        """Kill the broker, as SIGKILL does. Its session with the store ends after the timeout."""

    def pause(self) -> None:
        """Suspend the broker, with its connections open."""

    def resume(self) -> None:
        """Let the broker continue after `pause`."""

    def expire_session(self) -> None:
        """Make the metadata store expire the broker's session now."""

    def fill_disk(self, is_full: bool) -> None:
        """Fill the broker's disk, so that every write fails (ENOSPC); free it if `is_full` is false."""
