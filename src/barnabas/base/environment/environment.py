"""The environment of one broker as one object."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from random import Random
from typing import Any, Self

from barnabas.base.environment.blocking import Blocking, Threads
from barnabas.base.environment.clock import Clock, SystemClock
from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.environment.network import Network, SocketNetwork
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.environment.process import ProcessUse, process_use
from barnabas.base.environment.randomness import system_random


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """The interfaces to the system that one broker uses.

    They do not include the broker's event loop, which provides timers and tasks.
    """

    clock: Clock
    filesystem: FileSystem
    blocking: Blocking
    network: Network
    #: the source of random numbers and unique ids (`barnabas.base.environment.randomness`); safe from any
    #: thread
    random: Random
    #: opens a session with the metadata store (a `barnabas.broker.metadata.store.MetadataStore`); None for
    #: the store that the setting ``metadata.store`` names
    open_store: Callable[[], Awaitable[Any]] | None = None
    #: the process's use of the machine, for metrics; reading it may take a while
    process_use: Callable[[], ProcessUse] | None = None

    @classmethod
    def of_system(cls) -> Self:
        """Return an environment that uses the operating system."""
        return cls(
            clock=SystemClock(),
            filesystem=OsFileSystem(),
            blocking=Threads(),
            network=SocketNetwork(),
            random=system_random(),
            process_use=process_use,
        )
