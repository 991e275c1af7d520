"""One broker of a cluster under test, as the cluster handles it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class BrokerSettings:
    """The settings that one broker is started with.

    Attributes:
        broker_id: ``node.id``.
        settings: all its settings, by Kafka's names.
        routes: by the port of another broker, that of the relay to it.
    """

    broker_id: int
    settings: Mapping[str, str]
    routes: Mapping[int, int]


class RunningBroker(Protocol):
    """A running broker. It cannot be used after `stop` or `kill`: a restart makes a new one."""

    def stop(self) -> None:
        """Stop it cleanly, and wait for that."""

    def kill(self) -> None:
        """End it at once, as SIGKILL does. Its session with the store ends by timeout."""

    def pause(self) -> None:
        """Freeze it, with its connections open."""

    def resume(self) -> None:
        """Undo `pause`."""

    def expire_session(self) -> None:
        """Have the metadata store expire its session now."""

    def fill_disk(self, is_full: bool) -> None:
        """Let every write to its disk fail (ENOSPC), or succeed again."""
