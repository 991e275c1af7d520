"""The metadata store in a ZooKeeper ensemble (3.6 or later)."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from kazoo import exceptions as kazoo_errors
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.session import CERTAIN_PART, FINAL, StoreSession, Watches
from barnabas.broker.metadata.store import (
    BadVersionError,
    Cancel,
    EphemeralParentError,
    Event,
    NodeExistsError,
    NoNodeError,
    NotAllowedError,
    NotEmptyError,
    Operation,
    SessionListener,
    SessionState,
    SingleOperations,
    StoreError,
    StoreNode,
    StoreUnavailableError,
    TransactionTooLargeError,
    UnknownOutcomeError,
    Watcher,
)
from barnabas.broker.metadata.store import Create as CreateNode
from barnabas.broker.metadata.tree import ROOT, check_path, parent_of
from barnabas.broker.metadata.wait_limit import WaitLimit
from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress
from barnabas.broker.metadata.zookeeper.connection import Link, Pending, ZooKeeperConnection
from barnabas.broker.metadata.zookeeper.requests import (
    AddWatch,
    Children,
    FailedOperation,
    Get,
    GetAcl,
    Multi,
    MultiRead,
    Request,
    SetAcl,
    Sync,
    acl_bytes,
)

log = logger_of(__name__)

#: nodes in one multiRead: larger ones are no faster, and delay later requests
_READ_AT_ONCE = 200
#: a server closes the connection on a request above its ``jute.maxbuffer``, 1 MiB if nothing is set
_MAX_TRANSACTION_BYTES = 1_000_000
#: kazoo wakes its thread with a byte in a socket for each request, and gives up when the socket is full
_MAX_IN_FLIGHT = 200
#: the permissions of an ordinary node, and of a node with secrets
_EVERYBODYS = (acl_bytes(OPEN_ACL_UNSAFE),) * 2
_CREATORS = (acl_bytes([*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]), acl_bytes(CREATOR_ALL_ACL))
#: the node in which the ensemble keeps its own configuration
_ENSEMBLES_OWN = "/zookeeper"
#: how long `close` waits for the ensemble's response, in seconds, and then for kazoo to stop
_CLOSE_PATIENCE = 2.0
#: ZooKeeper's own log shows a session's number so
_UNSIGNED = 0xFFFF_FFFF_FFFF_FFFF

_ERRORS: dict[type[Exception], type[StoreError]] = {
    kazoo_errors.NoNodeError: NoNodeError,
    kazoo_errors.NodeExistsError: NodeExistsError,
    kazoo_errors.BadVersionError: BadVersionError,
    kazoo_errors.NotEmptyError: NotEmptyError,
    kazoo_errors.NoChildrenForEphemeralsError: EphemeralParentError,
    kazoo_errors.NoAuthError: NotAllowedError,
    kazoo_errors.SystemZookeeperError: StoreUnavailableError,  # the disk of a server of ours: nothing changed
}
#: after these it is open whether a write was carried out
_LOST_ANSWERS = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.ConnectionClosedError,
    kazoo_errors.SessionExpiredError,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.RequestTimeoutError,
    kazoo_errors.SessionMovedError,
)


class ZooKeeperStore(SingleOperations):
    """One client of an ensemble. `open` returns it, and documents the arguments.

    The paths in its methods are relative to the chroot. The client creates the chroot if it is missing.

    After a lost session the client opens another one. After every reconnection the client sets its watches
    again and syncs the server with the ensemble. Only then is the state CONNECTED. So a read in this state
    shows whether an earlier write without a response was executed. Watchers receive every change that is made
    in this state.

    Requests are sent in the order of the calls. At most `max_in_flight` have no response yet.
    """

    def __init__(
        self,
        address: ZooKeeperAddress,
        *,
        session_timeout: float,
        max_in_flight: int = 10,
        set_acl: bool = False,
        auth: Sequence[tuple[str, str]] = (),
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        self._address = address
        self._chroot = address.chroot
        self._acls = _CREATORS if set_acl else _EVERYBODYS
        self._max_in_flight = min(max_in_flight, _MAX_IN_FLIGHT)
        self._session = StoreSession(SessionState.SUSPENDED)
        self._session_id = 0
        self._chroot_exists = False
        self._linked = False
        self._watches = Watches()
        #: the paths that the ensemble watches for this client; a path below one of them needs no other watch
        self._watched: set[str] = set()
        self._waiting: deque[Pending] = deque()
        self._in_flight: set[Pending] = set()
        self._resuming: asyncio.Task[None] | None = None
        self._overdue: asyncio.TimerHandle | None = None
        self._failure = ""
        self._connection = ZooKeeperConnection(address, session_timeout, self, auth, tls)

    @classmethod
    async def open(
        cls,
        address: ZooKeeperAddress,
        *,
        session_timeout: float,
        connection_timeout: float | None = None,
        max_in_flight: int = 10,
        set_acl: bool = False,
        auth: Sequence[tuple[str, str]] = (),
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> ZooKeeperStore:
        """Connect, and create the chroot if it is missing.

        Args:
            address: the servers and the chroot.
            session_timeout: seconds without a packet after which the ensemble ends the session. The ensemble
                may limit it.
            connection_timeout: seconds to wait for the first connection; None means `session_timeout`.
            max_in_flight: largest number of requests without a response.
            set_acl: allow only this client's identity to change its nodes and to read secrets; needs `auth`.
            auth: how the client authenticates, as pairs of a scheme and a credential.
            tls: makes the TLS context of a connection, in a thread; it raises ConfigError. None for
                plaintext.

        Raises:
            StoreUnavailableError: no server answers, the server is too old, or it refuses the client.
        """
        store = cls(
            address,
            session_timeout=session_timeout,
            max_in_flight=max_in_flight,
            set_acl=set_acl,
            auth=auth,
            tls=tls,
        )
        timeout = session_timeout if connection_timeout is None else connection_timeout
        begun = asyncio.get_running_loop().create_future()

        def on_state(state: SessionState) -> None:
            if (state is SessionState.CONNECTED or state in FINAL) and not begun.done():
                begun.set_result(None)

        cancel = store.on_state(on_state)
        store._connection.start()
        try:
            if not await WaitLimit(timeout).wait(begun):
                trouble = f" ({store._connection.trouble})" if store._connection.trouble else ""
                raise StoreUnavailableError(
                    f"no ZooKeeper answers at {address} within {timeout:g} s{trouble}: start it, or correct "
                    "zookeeper.connect; zookeeper.connection.timeout.ms is how long a broker waits"
                )
            store._check_connected()
        except BaseException:
            await store.close()
            raise
        finally:
            cancel()
        return store

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout(self) -> float:
        return self._connection.session_timeout

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def is_certain(self) -> bool:
        connection = self._connection
        # A loop that stood still has not heard yet of what kazoo's thread has.
        since = min(connection.heard_at, connection.loop_seen_at)
        return (
            self._session.state is SessionState.CONNECTED
            and time.monotonic() < since + CERTAIN_PART * self.session_timeout
        )

    def on_state(self, listener: SessionListener) -> Cancel:
        return self._session.on_state(listener)

    async def get(self, path: str) -> StoreNode:
        _check_named(path)
        node: StoreNode = await self._call(Get(path, self._chroot), path)
        return node

    async def exists(self, path: str) -> StoreNode | None:
        try:
            return await self.get(path)
        except NoNodeError:
            return None

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        for path in paths:
            _check_named(path)
        starts = range(0, len(paths), _READ_AT_ONCE)
        groups = await asyncio.gather(*(self._read(paths[i : i + _READ_AT_ONCE]) for i in starts))
        return [node for group in groups for node in group]

    async def _read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        try:
            nodes: list[StoreNode | None] = await self._call(MultiRead(paths, self._chroot))
        except FailedOperation as failed:
            raise _of_node(failed.error, paths[failed.index]) from failed
        return nodes

    async def children(self, path: str) -> list[str]:
        _check_named(path)
        return sorted(await self._call(Children(path, self._chroot), path))

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        for operation in operations:
            check_path(operation.path)
        request = Multi(operations, self._chroot, self._acl)
        if len(request.data) > _MAX_TRANSACTION_BYTES:
            raise TransactionTooLargeError(
                f"a transaction of {len(operations)} operations has {len(request.data)} bytes, and ZooKeeper "
                f"takes {_MAX_TRANSACTION_BYTES} in one: divide it"
            )
        try:
            versions: list[int] = await self._call(request)
        except FailedOperation as failed:
            raise _of_node(failed.error, operations[failed.index].path) from failed
        return versions

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        _check_named(path)
        if not self._is_watched(path):
            await self._call(AddWatch(path, self._chroot), path)
            self._watched.add(path)
        return self._watches.add(path, watcher)

    async def sync(self) -> None:
        await self._call(Sync(ROOT, self._chroot))

    async def close_off(self, *, parents: bool) -> int:
        """Allow only this client's identity to change the cluster's nodes, and to read nodes with secrets.

        A store with `set_acl` creates its nodes with these permissions. This method sets them on nodes that
        were created without `set_acl`, or by another client. If the chroot already has the permissions, the
        nodes below it do not change.

        Args:
            parents: whether to do the same with ``/`` and all other nodes above the chroot.

        Returns:
            The number of nodes that any client could change before.

        Raises:
            NotAllowedError: this client may not set the permissions of a node.
            StoreError: the ensemble does not answer.
        """
        parts = self._chroot.split("/")
        above = ["/".join(parts[:end]) or ROOT for end in range(1, len(parts))] if self._chroot else []
        closed = 0
        for path in above if parents else []:
            closed += await self._close_off(path, secret=False)
        top = self._chroot or ROOT
        if not await self._close_off(top, secret=False):
            return closed
        below = [ROOT]
        closed += 1
        while below:
            path = below.pop()
            for name in await self.children(path):
                child = f"{path.rstrip('/')}/{name}"
                if not self._chroot and child == _ENSEMBLES_OWN:
                    continue
                closed += await self._close_off(self._chroot + child, secret=znodes.is_secret(child))
                below.append(child)
        return closed

    async def _close_off(self, path: str, *, secret: bool) -> bool:
        """Set the permissions of one node (`close_off`). Return False if it already had them.

        Args:
            path: path of the node, from the root of the ensemble and not from the chroot.
            secret: whether only this client's identity may also read the node.
        """
        if not await self._call(GetAcl(path), path):
            return False
        await self._call(SetAcl(path, _CREATORS[secret]), path)
        return True

    async def is_root_open(self) -> bool:
        """Whether any client may change ``/`` of the ensemble."""
        is_open: bool = await self._call(GetAcl(ROOT), ROOT)
        return is_open

    async def close(self) -> None:
        if self.state is SessionState.CLOSED:
            return
        lives = self._session_id != 0 and self.state not in (SessionState.LOST, SessionState.FAILED)
        self._watches.clear()
        self._stop_waiting("the metadata store is closed")
        self._session.enter(SessionState.CLOSED)
        self._stop_timers()
        linked = self._linked
        stopped = await self._connection.stop(_CLOSE_PATIENCE)
        if lives and not (linked and stopped):
            log.warning(
                "ZooKeeper could not be told that session 0x%x ends: its nodes go when %.0f s have passed",
                self._session_id & _UNSIGNED,
                self.session_timeout,
            )

    # -- requests

    async def _call(self, request: Request, path: str = "") -> Any:
        self._check_connected()
        return await self._answer(request, path)

    async def _answer(self, request: Request, path: str = "") -> Any:
        future = asyncio.get_running_loop().create_future()
        self._waiting.append(Pending(self._connection, request, future))
        self._send_waiting()
        try:
            return await future
        except (StoreError, FailedOperation):
            raise
        except Exception as error:
            raise _of_request(error, request, path) from error

    def _send_waiting(self) -> None:
        while self._waiting and self._linked and len(self._in_flight) < self._max_in_flight:
            pending = self._waiting.popleft()
            if not pending.future.done():  # else its caller was cancelled
                self._in_flight.add(pending)
                self._connection.send(pending)

    def _check_connected(self) -> None:
        state = self.state
        if state is SessionState.CONNECTED:
            return
        if state is SessionState.CLOSED:
            raise StoreUnavailableError("the metadata store is closed")
        if state is SessionState.FAILED:
            raise StoreUnavailableError(self._failure)
        raise StoreUnavailableError(
            f"ZooKeeper at {self._address} does not answer: the session is {state.value}"
        )

    def _stop_waiting(self, reason: str) -> None:
        """Fail all requests that have no response yet, sent or queued, with `reason` as the message."""
        waiting, self._waiting = self._waiting, deque()
        in_flight, self._in_flight = self._in_flight, set()
        for pending in waiting:
            _fail(pending, StoreUnavailableError(reason))
        for pending in in_flight:
            _fail(
                pending,
                UnknownOutcomeError(reason) if pending.request.writes else StoreUnavailableError(reason),
            )

    # -- what the connection reports

    def answered(self, pending: Pending, value: Any, error: Exception | None) -> None:
        self._in_flight.discard(pending)
        if pending.future.done():
            return
        if error is None:
            pending.future.set_result(value)
        else:
            pending.future.set_exception(error)

    def inbox_emptied(self) -> None:
        self._send_waiting()

    def node_changed(self, event: Event, path: str) -> None:
        if self._chroot:
            path = path[len(self._chroot) :] or ROOT
        self._watches.report(event, path)

    def link_changed(self, link: Link, session_id: int) -> None:
        self._linked = link is Link.CONNECTED
        if self._resuming is not None:
            self._resuming.cancel()
        if self.state in FINAL:
            return
        if link is Link.CONNECTED:
            began = "goes on" if session_id == self._session_id else "begins"
            log.info(
                "connected to ZooKeeper at %s: session 0x%x %s, its timeout is %.1f s",
                self._address,
                session_id & _UNSIGNED,
                began,
                self.session_timeout,
            )
            self._session_id = session_id
            self._watch_over_session()
            self._resuming = start_task(self._resume(), "ZooKeeper session", is_vital=True)
            return
        self._stop_waiting("the connection to ZooKeeper broke")
        if link is Link.DROPPED:
            self._suspend()
        elif link is Link.EXPIRED:
            self._stop_timers()
            log.error("ZooKeeper has ended session 0x%x and deleted its nodes", self._session_id & _UNSIGNED)
            self._session.enter(SessionState.LOST)
        elif link is Link.REFUSED:
            self._fail("ZooKeeper refused the authentication")
        else:
            self._fail(f"the ZooKeeper client stopped ({self._connection.trouble or 'no reason is known'})")

    def _suspend(self) -> None:
        if self.state is SessionState.CONNECTED:
            log.warning(
                "the connection to ZooKeeper at %s broke (%s): session 0x%x is suspended",
                self._address,
                self._connection.trouble or "closed by the server",
                self._session_id & _UNSIGNED,
            )
            self._session.enter(SessionState.SUSPENDED)

    def _fail(self, reason: str) -> None:
        self._failure = f"{reason}: restart the broker once the cause is gone"
        self._stop_timers()
        log.error("%s", self._failure)
        self._session.enter(SessionState.FAILED)

    # -- the session

    async def _resume(self) -> None:
        """Create the chroot, set the watches again and sync the server. Then enter the state CONNECTED."""
        try:
            if not self._chroot_exists:
                await self._make_chroot()
                self._chroot_exists = True
            for path in sorted(self._watched):
                await self._answer(AddWatch(path, self._chroot), path)
            await self._answer(Sync(ROOT, self._chroot), ROOT)
        except StoreUnavailableError:
            return  # the link changes again
        except StoreError as error:
            self._fail(f"ZooKeeper at {self._address} cannot be used ({error})")
            return
        self._session.enter(SessionState.CONNECTED)

    def _acl(self, path: str) -> bytes:
        """Return the encoded permissions of the new node at `path`."""
        return self._acls[znodes.is_secret(path)]

    async def _make_chroot(self) -> None:
        path = self._chroot
        try:
            await self._answer(Get(path or ROOT, ""), path)
            return
        except NoNodeError:
            path = ""
        for name in self._chroot.split("/")[1:]:
            path += f"/{name}"
            try:
                await self._answer(Multi([CreateNode(path)], "", self._acl))
            except FailedOperation as failed:
                if not isinstance(failed.error, kazoo_errors.NodeExistsError):
                    raise _of_node(failed.error, path) from failed

    def _is_watched(self, path: str) -> bool:
        while path not in self._watched:
            if path == ROOT:
                return False
            path = parent_of(path)
        return True

    def _watch_over_session(self) -> None:
        """Enter the state OVERDUE if the session timeout has passed since the ensemble's last packet.

        Then also fail all requests that have no response yet. If the timeout has not passed yet, start a
        timer that calls this method again. kazoo itself reports the end of the session only when it has
        reached the ensemble again, which may be much later.
        """
        if self._overdue is not None:
            self._overdue.cancel()
        left = self._connection.heard_at + self.session_timeout - time.monotonic()
        if left > 0:
            self._overdue = asyncio.get_running_loop().call_later(left, self._watch_over_session)
            return
        self._overdue = None
        log.error(
            "ZooKeeper at %s has not answered for %.1f s: session 0x%x may have ended",
            self._address,
            self.session_timeout,
            self._session_id & _UNSIGNED,
        )
        if self._linked:  # kazoo has not noticed: its thread, or this process, stood still
            self._linked = False
            self._connection.drop()
        self._stop_waiting("ZooKeeper has not answered for the session timeout")
        self._session.enter(SessionState.OVERDUE)

    def _stop_timers(self) -> None:
        if self._overdue is not None:
            self._overdue.cancel()
            self._overdue = None
        if self._resuming is not None:
            self._resuming.cancel()


def _check_named(path: str) -> None:
    if path != ROOT:
        check_path(path)


def _fail(pending: Pending, error: Exception) -> None:
    if not pending.future.done():
        pending.future.set_exception(error)


def _of_node(error: Exception, path: str) -> StoreError:
    return _ERRORS.get(type(error), StoreError)(f"{path}: {_text(error)}")


def _of_request(error: Exception, request: Request, path: str) -> StoreError:
    if isinstance(error, _LOST_ANSWERS):
        kind = UnknownOutcomeError if request.writes else StoreUnavailableError
        return kind(f"the connection to ZooKeeper broke before an answer came ({_text(error)})")
    if isinstance(error, kazoo_errors.AuthFailedError):
        return StoreUnavailableError("ZooKeeper refused the authentication")
    if isinstance(error, kazoo_errors.UnimplementedError):
        return StoreError("ZooKeeper does not know a request: it must be of version 3.6 or later")
    return _of_node(error, path or "a transaction")


def _text(error: Exception) -> str:
    name = type(error).__name__
    return f"{name}: {error}" if str(error) else name
