"""The interface of a metadata store: ZooKeeper's tree of versioned nodes.

A path (``/brokers/topics/orders``) names a node. A node has bytes, and a version that each change raises. It
may have children. Code above this interface does not depend on the kind of store: memory, a file or a
ZooKeeper ensemble. Each store must pass tests/unit/broker/metadata/test_store_contract.py.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from enum import Enum
from functools import lru_cache
from typing import NamedTuple, Protocol, TypeAlias

from barnabas.base.errors import BarnabasError

#: in place of an expected version: accepts every version
ANY_VERSION = -1


class StoreError(BarnabasError):
    """The base class of a metadata store's errors."""


class NoNodeError(StoreError):
    """The node does not exist, or the parent of a new node does not exist."""


class NodeExistsError(StoreError):
    """The new node exists already."""


class BadVersionError(StoreError):
    """The node has another version than expected, because another client has changed it."""


class NotEmptyError(StoreError):
    """The node has children, so it cannot be deleted."""


class NotAllowedError(StoreError):
    """The node's permissions do not allow the operation."""


class EphemeralParentError(StoreError):
    """The parent is an ephemeral node, which cannot have children."""


class StoreUnavailableError(StoreError):
    """The store cannot be read or written: its disk or its connection has failed, or it is closed.

    After a write it means that nothing has changed, unless it is an UnknownOutcomeError.
    """


class UnknownOutcomeError(StoreUnavailableError):
    """The connection broke during a write. The store may have executed it, or may still execute it.

    Never repeat such a write without reading its outcome first (kazoo 757).
    """


class TransactionTooLargeError(StoreError):
    """A transaction has more bytes than the store accepts. Nothing has changed. The caller must divide it."""


class DamagedNodeError(BarnabasError):
    """The data of a node cannot be decoded. It stays so until a user mends the node. The text has its path.

    This is no StoreError: the store works, and a controller that resigned would not help.
    """


class StoreNode(NamedTuple):
    """A node at the time of its read.

    `created` is the number of the transaction that created it. In a store these numbers only grow, so a node
    that was deleted and created again has a higher number. `owner` is the session of an ephemeral node, and 0
    for a permanent node.
    """

    data: bytes
    version: int
    created: int
    owner: int = 0


def shared_node(data: bytes, version: int, created: int, owner: int = 0) -> StoreNode:
    """Return a node with these contents. To save memory, equal nodes with little data are usually one object.

    For example, many partitions have equal states.
    """
    if len(data) > _MAX_SHARED_BYTES:
        return StoreNode(data, version, created, owner)
    return _shared_node(data, version, created, owner)


_MAX_SHARED_BYTES = 500
_shared_node = lru_cache(maxsize=4096)(StoreNode)


class Event(Enum):
    CREATED = "created"
    CHANGED = "changed"
    DELETED = "deleted"


#: Function that is called on the event loop with the kind of change and the node's path, not the data.
Watcher: TypeAlias = Callable[[Event, str], None]


class SessionState(Enum):
    """The state of the session with the store.

    A store in the same process is CONNECTED until it is closed.
    """

    #: Requests are answered, and every watch is set.
    CONNECTED = "connected"
    #: There is no connection. The session and its ephemeral nodes may still exist. Requests fail at once, and
    #: watchers receive no changes.
    SUSPENDED = "suspended"
    #: Suspended for longer than the session timeout: the session and its ephemeral nodes may have ended.
    #: The next state shows this: CONNECTED with the same session id, or LOST.
    OVERDUE = "overdue"
    #: The store ended the session: its ephemeral nodes are gone. CONNECTED comes next, with a new session id.
    LOST = "lost"
    #: No session will begin any more: the authentication failed, or the client broke. Final.
    FAILED = "failed"
    #: `close` was called. Final.
    CLOSED = "closed"


#: Function that is called on the event loop with the session's new state. At CONNECTED, earlier reads may
#: be stale, so read again. Later changes are reported.
SessionListener: TypeAlias = Callable[[SessionState], None]

#: Function that ends the watch or subscription that returned it. A second call does nothing.
Cancel: TypeAlias = Callable[[], None]


class Create(NamedTuple):
    """Operation that creates a node under an existing parent.

    An ephemeral node is deleted when the session that created it ends.
    """

    path: str
    data: bytes = b""
    ephemeral: bool = False


class Set(NamedTuple):
    """Operation that replaces a node's data if the node has the expected version."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class Delete(NamedTuple):
    """Operation that deletes a node without children if the node has the expected version."""

    path: str
    version: int = ANY_VERSION


class Check(NamedTuple):
    """Operation that fails the transaction unless the node exists and has the expected version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Set | Delete | Check


class MetadataStore(Protocol):
    """A client of a metadata store, with one session at a time.

    Any method raises StoreUnavailableError if the store cannot be reached. A write raises UnknownOutcomeError
    if the store may have executed it.
    """

    @property
    def session_id(self) -> int:
        """The id of this session, which owns its ephemeral nodes; never 0.

        After a lost session the next one has another id.
        """

    @property
    def session_timeout(self) -> float:
        """Seconds after the client's last message at which a session ends; 0 for a store in this process."""

    @property
    def state(self) -> SessionState:
        """The present state of the session."""

    @property
    def is_certain(self) -> bool:
        """Whether the session is certainly alive.

        A session of a remote store is certain while the store's last response is younger than a safe part of
        the session timeout. The clock decides this, and not only `state`: after a stall, a process may serve
        requests before `state` changes.
        """

    def on_state(self, listener: SessionListener) -> Cancel:
        """Call `listener` at each change of `state`, until the returned function is called.

        Listeners are called in the order in which they were added.
        """

    async def get(self, path: str) -> StoreNode:
        """Return a node. Raises NoNodeError if it does not exist."""

    async def exists(self, path: str) -> StoreNode | None:
        """Return a node; None if it does not exist."""

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        """Return many nodes, in the order of `paths`; None for each node that does not exist."""

    async def children(self, path: str) -> list[str]:
        """Return the sorted names of a node's children, without their path.

        Raises NoNodeError if the node does not exist.
        """

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        """Create a node with `data`; with `ephemeral`, a node that ends with this session.

        Raises:
            NodeExistsError: there is a node at `path`.
            NoNodeError: the parent does not exist.
            EphemeralParentError: the parent is ephemeral.
        """

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        """Replace a node's data, and return its new version.

        Raises:
            NoNodeError: the node does not exist.
            BadVersionError: the node has another version than `version`.
        """

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        """Delete a node.

        Raises:
            NoNodeError: the node does not exist.
            BadVersionError: the node has another version than `version`.
            NotEmptyError: the node has children.
        """

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        """Apply all operations in order, or none. Return the version of each Create and Set, -1 for others.

        Raises:
            StoreError: the error of the first operation that failed, for example NoNodeError; nothing has
                changed.
            TransactionTooLargeError: the store does not accept a transaction of this size (see `batches`).
            StoreUnavailableError: the store cannot be written; nothing has changed, unless the error is an
                UnknownOutcomeError.
        """

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        """Report later changes of `path`, and of all nodes below it, to `watcher`.

        `watcher` is called on the event loop with the kind of the change and the path of the changed node.
        This is ZooKeeper's persistent recursive watch. It ends when the returned function is called. The
        store reports a write of this session before the method that writes returns. Changes while the session
        is not CONNECTED are not reported: see `SessionListener`.

        Raises:
            StoreUnavailableError: the store cannot be reached; nothing is watched.
        """

    async def sync(self) -> None:
        """Wait until reads and watchers see all earlier writes of any session."""

    async def close(self) -> None:
        """End the session, which deletes its ephemeral nodes.

        The listeners of `on_state` are called with CLOSED, not with LOST.
        """


class SingleOperations(ABC):
    """Implements `create`, `set` and `delete` with `multi`.

    Stores use it if a transaction costs them no more than a single write.
    """

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[int]: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self.multi([Create(path, data, ephemeral)])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return (await self.multi([Set(path, data, version)]))[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])
