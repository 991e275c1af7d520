"""The interface of a metadata store: ZooKeeper's tree of versioned nodes.

A path (``/brokers/topics/orders``) names a node. A node holds bytes, has a version that each change raises,
and may have children. Code above this interface does not depend on the store: memory, a file or a ZooKeeper
ensemble. Each store has to pass tests/unit/broker/metadata/test_store_contract.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.base.errors import BarnabasError

#: in place of a version: whatever it is
ANY_VERSION = -1


class StoreError(BarnabasError):
    """The base class of a metadata store's errors."""


class NoNodeError(StoreError):
    """The node, or the parent of the node to be made, does not exist."""


class NodeExistsError(StoreError):
    """The node to be made exists."""


class BadVersionError(StoreError):
    """The node has another version than expected: another client has changed it."""


class NotEmptyError(StoreError):
    """The node to be deleted has children."""


class NotAllowedError(StoreError):
    """The node's permissions do not allow it."""


class EphemeralParentError(StoreError):
    """An ephemeral node can have no children."""


class StoreUnavailableError(StoreError):
    """The store cannot be read or written: its disk or its connection has failed, or it is closed.

    Of a write this says that nothing has changed, unless it is an UnknownOutcomeError.
    """


class UnknownOutcomeError(StoreUnavailableError):
    """The connection broke while a write was under way: it may have been carried out, or may still be.

    Never repeat such a write blindly (kazoo 757): read what became of it first.
    """


class TransactionTooLargeError(StoreError):
    """A transaction has more bytes than the store takes in one; nothing has changed. Divide it."""


class StoreNode(NamedTuple):
    """One node at the time of its read.

    `created` is the number of the transaction that created it. Such numbers only grow in one store, so a node
    that was deleted and created again has a higher one. `owner` is the session of an ephemeral node, else 0.
    """

    data: bytes
    version: int
    created: int
    owner: int = 0


def shared_node(data: bytes, version: int, created: int, owner: int = 0) -> StoreNode:
    """Return a node that others who hold the same share: the partitions of a topic do."""
    if len(data) > _MOST_SHARED_BYTES:
        return StoreNode(data, version, created, owner)
    return _shared_node(data, version, created, owner)


_MOST_SHARED_BYTES = 500
_shared_node = lru_cache(maxsize=4096)(StoreNode)


class Event(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


#: Called on the event loop with what happened to which path; it says that, not the new data: read again.
Watcher: TypeAlias = Callable[[Event, str], None]


class SessionState(Enum):
    """The state of the session with the store. A store in one process is CONNECTED until it is closed."""

    #: Requests are answered, and every watch is set.
    CONNECTED = "connected"
    #: There is no connection. The session, and with it the ephemeral nodes, may live on. Requests fail at
    #: once, and changes go unheard.
    SUSPENDED = "suspended"
    #: Suspended for longer than the session timeout: others may have seen the ephemeral nodes go. Whether
    #: they did is known when the store answers again: CONNECTED with the same session id, or LOST.
    OVERDUE = "overdue"
    #: The store ended the session: its ephemeral nodes are gone. CONNECTED comes next, with a new session id.
    LOST = "lost"
    #: No session will begin any more: the authentication failed, or the client broke. Final.
    FAILED = "failed"
    #: `close` was called. Final.
    CLOSED = "closed"


#: Called on the event loop with the state that the session has come to. CONNECTED means: all that was read
#: before may be stale, and all that changes from now on is reported; read again what matters.
SessionListener: TypeAlias = Callable[[SessionState], None]

#: Undoes what gave it; a second call does nothing.
Cancel: TypeAlias = Callable[[], None]


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
    """A client of a metadata store, with one session at a time.

    Any method raises StoreUnavailableError when the store is out of reach; a write raises UnknownOutcomeError
    when it may have been carried out all the same.
    """

    @property
    def session_id(self) -> int:
        """The number that owns this session's ephemeral nodes; never 0. A session that follows a lost one
        has another."""

    @property
    def session_timeout(self) -> float:
        """Seconds for which a session outlives the last sign of life of its client; 0 in one process."""

    @property
    def state(self) -> SessionState:
        """The present state of the session."""

    @property
    def is_certain(self) -> bool:
        """Whether the session surely lives: the last response of the store is younger than the session
        timeout.

        By the clock, not by `state`: after a stall a process serves requests before `state` changes.
        """

    def on_state(self, listener: SessionListener) -> Cancel:
        """Call `listener` at each change of `state`, in the order in which they were added."""

    async def get(self, path: str) -> StoreNode:
        """Raises NoNodeError."""

    async def exists(self, path: str) -> StoreNode | None:
        """Return the node, or None when there is none."""

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        """Read many nodes in one round trip, None for each that does not exist."""

    async def children(self, path: str) -> list[str]:
        """Return the names of a node's children, without their path, sorted. Raises NoNodeError."""

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Raises NodeExistsError, NoNodeError for a missing parent, EphemeralParentError."""

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Return the node's new version. Raises NoNodeError, BadVersionError."""

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Raises NoNodeError, BadVersionError, NotEmptyError."""

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations in order, or none; return the version of each Create and Set, -1 for others.

        Raises:
            StoreError: what the first operation that failed would raise alone; nothing has changed then.
            TransactionTooLargeError: the store takes no transaction of this size (see `batches`).
        """

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        """Report every change of `path` and of all nodes below it from the moment of the return.

        This is ZooKeeper's persistent recursive watch. A change made through this session is reported before
        its call returns. Changes while the session is not CONNECTED are not reported: see `SessionListener`.
        """

    async def sync(self) -> None:
        """Wait until reads and watchers see all earlier writes of any session."""

    async def close(self) -> None:
        """End the session: its ephemeral nodes go, and listeners receive CLOSED only."""


class SingleOperations(ABC):
    """Mixed into a store whose transactions cost no more than single operations."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[int]: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self.multi([Create(path, data, ephemeral)])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return (await self.multi([Set(path, data, version)]))[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])
