"""What a metadata store must be able to do: the tree of versioned nodes that ZooKeeper has.

A node is named by a path (``/brokers/topics/orders``), holds bytes, has a version that each change raises,
and may have children. Everything above this interface is the same whether the tree lies in memory, in a file
or in a ZooKeeper ensemble; tests/unit/metadata/test_store_contract.py is what each of them has to pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.errors import BarnabasError

#: in place of a version: whatever it is
ANY_VERSION = -1


class StoreError(BarnabasError):
    """The root of what a metadata store raises."""


class NoNodeError(StoreError):
    """The node, or the parent of the node to be made, does not exist."""


class NodeExistsError(StoreError):
    """The node to be made exists."""


class BadVersionError(StoreError):
    """The node has another version than expected: someone else was there first."""


class NotEmptyError(StoreError):
    """The node to be deleted has children."""


class EphemeralParentError(StoreError):
    """An ephemeral node can have no children."""


class StoreUnavailableError(StoreError):
    """The store cannot be read or written: its disk or its connection has failed, or it is closed."""


class Node(NamedTuple):
    """One node as it was read.

    `created` is the number of the transaction that made it, which only ever grows in one store: a node that
    was deleted and made again has a higher one. `owner` is the session an ephemeral node dies with, else 0.
    """

    data: bytes
    version: int
    created: int
    owner: int = 0


class Event(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


#: Called on the event loop with what happened to which path; it says that, not the new data: read again.
Watcher: TypeAlias = Callable[[Event, str], None]


class Create(NamedTuple):
    """Make a node under a parent that exists. An ephemeral one goes when the session that made it ends."""

    path: str
    data: bytes = b""
    ephemeral: bool = False


class Set(NamedTuple):
    """Replace a node's data, if it has the expected version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Remove a node without children, if it has the expected version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Fail the transaction unless the node exists and has the expected version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check


class MetadataStore(Protocol):
    """One session with a metadata store. Any method raises StoreUnavailableError when it is out of reach."""

    @property
    def session_id(self) -> int:
        """The number that owns this session's ephemeral nodes; never 0."""

    async def get(self, path: str) -> Node:
        """Raises NoNodeError."""

    async def exists(self, path: str) -> Node | None:
        """The node, or None when there is none."""

    async def read(self, paths: Sequence[str]) -> list[Node | None]:
        """As `exists` for many nodes, at the price of one journey."""

    async def children(self, path: str) -> list[str]:
        """The names of a node's children, without their path, sorted. Raises NoNodeError."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Raises NodeExistsError, NoNodeError for a missing parent, EphemeralParentError."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """The node's new version. Raises NoNodeError, BadVersionError."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNodeError, BadVersionError, NotEmptyError."""

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        """All of the operations in order, or none; the version that each Create and Set gave, -1 for others.

        Raises:
            StoreError: what the first operation that failed would raise alone; nothing has changed then.
        """

    def watch(self, path: str, watcher: Watcher) -> None:
        """Report every change of `path` and of all below it until the session ends (ZooKeeper's persistent
        recursive watch). A change made through this session is reported before its call returns."""

    async def close(self) -> None:
        """End the session: its ephemeral nodes go, its watchers hear nothing more."""
