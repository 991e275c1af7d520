"""A metadata store in memory that several brokers share, with the faults of a ZooKeeper ensemble.

    ensemble = SimulatedEnsemble(random.Random(seed))
    environment = Environment(..., open_store=lambda: ensemble.open("broker-1"))
    ensemble.cut("broker-1")            # no data passes: the client notices, and later the session ends
    ensemble.heal("broker-1")
    ensemble.reset("broker-1")          # the connection breaks; the session continues
    ensemble.lose_answer("broker-1")    # the next write is applied, but its response is lost
    ensemble.expire("broker-1")         # the session ends now, whatever the client does
    ensemble.lag("broker-1", 2.0)       # its server is 2 seconds behind: reads are stale

The ensemble gives the same guarantees as ZooKeeper, and no others. All writes have one order. Each client is
connected to its own server, which applies the writes in this order with a lag. Reads and watches show the
state of that server, which includes the client's own writes. If a connection breaks, the client does not know
whether its last write was applied. A client that sends nothing for the session timeout loses its session and
its ephemeral nodes. The same happens to a client whose process was killed.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from barnabas.broker.metadata.session import CERTAIN_PART, FINAL, StoreSession, Watches
from barnabas.broker.metadata.store import (
    Cancel,
    Create,
    Delete,
    Operation,
    SessionListener,
    SessionState,
    Set,
    SingleOperations,
    StoreNode,
    StoreUnavailableError,
    TransactionTooLargeError,
    UnknownOutcomeError,
    Watcher,
)
from barnabas.broker.metadata.tree import Change, Tree
from barnabas.broker.metadata.wait_limit import WaitLimit

T = TypeVar("T")

#: a client that has heard nothing for this part of the session timeout gives its connection up
_PATIENCE = 2 / 3
#: how many times a client says within the session timeout that it lives
_PINGS = 9


@dataclass(frozen=True, slots=True)
class EnsembleConditions:
    """The behaviour of an ensemble without faults. Each time is a range from the shortest to the longest, in
    seconds.

    Attributes:
        delay: the time of a request, an answer or an event in the network.
        lag: the time by which a client's server is behind the other servers.
        reconnect: the pause from a broken connection to the next attempt.
        session_timeout: the time without a message after which a session expires.
        largest_transaction: the size limit of a transaction, in bytes.
    """

    delay: tuple[float, float] = (0.0002, 0.003)
    lag: tuple[float, float] = (0.0, 0.01)
    reconnect: tuple[float, float] = (0.02, 0.5)
    session_timeout: float = 18.0
    largest_transaction: int = 1_000_000


class SimulatedEnsemble:
    """The servers of a simulated ZooKeeper ensemble. All events depend only on the random numbers and the
    requests.

    Args:
        rng: the source of delays and lags, used for nothing else.
        conditions: the behaviour without faults.
        observe: called with a client's name and an event, for a trace.
        on_commit: called with each executed transaction and its changes.
    """

    def __init__(
        self,
        rng: Random,
        conditions: EnsembleConditions | None = None,
        *,
        observe: Callable[[str, str], None] | None = None,
        on_commit: Callable[[Sequence[Operation], Sequence[Change]], None] | None = None,
    ) -> None:
        self.rng = rng
        self.conditions = conditions or EnsembleConditions()
        #: the servers belong to no process of a simulation
        self.context = copy_context()
        self.tree = Tree()
        self._observe = observe
        self._on_commit = on_commit
        self._sessions: dict[int, _ServedSession] = {}
        self._last_session = 0
        #: each client's latest store
        self._stores: dict[str, SimulatedStore] = {}
        self._cut: dict[str, None] = {}
        #: when each client's last cut ended
        self._healed_at: dict[str, float] = {}
        self._lags: dict[str, float] = {}
        #: until when each client's server hears of nothing
        self._held_back: dict[str, float] = {}
        #: how many answers to writes are to be lost
        self._losses: dict[str, int] = {}

    async def open(self, name: str) -> SimulatedStore:
        """Open a new session of a client.

        Raises:
            StoreUnavailableError: the client cannot reach the ensemble within the session timeout.
        """
        store = self._stores[name] = SimulatedStore(self, name)
        connecting = store.connecting
        if not await WaitLimit(self.conditions.session_timeout).wait(connecting):
            await store.close()
            raise StoreUnavailableError("no server of the ensemble answers")
        await connecting
        return store

    def store_of(self, name: str) -> SimulatedStore:
        """Return the latest store of a client."""
        return self._stores[name]

    # --- faults ---

    def cut(self, name: str) -> None:
        """Drop all messages from and to the client."""
        self.note(name, "cut")
        self._cut[name] = None

    def heal(self, name: str) -> None:
        """End a cut. If messages were lost, break the connection, because a connection cannot have a gap."""
        self.note(name, "heal")
        if name in self._cut:
            del self._cut[name]
            self._healed_at[name] = asyncio.get_running_loop().time()
        store = self._stores.get(name)
        if store is not None and store.has_hole:
            store.break_soon()

    def heal_all(self) -> None:
        """End all cuts and lags, and lose no more answers."""
        for name in list(self._cut):
            self.heal(name)
        self._lags.clear()
        self._held_back.clear()
        self._losses.clear()

    def reset(self, name: str) -> None:
        """Break the client's connection. Both ends are notified."""
        store = self._stores.get(name)
        if store is not None:
            self.note(name, "reset")
            store.break_soon()

    def lose_answer(self, name: str) -> None:
        """Execute the client's next write, and break the connection instead of sending the answer."""
        self._losses[name] = self._losses.get(name, 0) + 1

    def expire(self, name: str) -> None:
        """End the client's session now. The client learns of it when it sends the next request."""
        store = self._stores.get(name)
        if store is not None:
            self.end_session(store.session_id)
            store.break_soon()

    def lag(self, name: str, seconds: float) -> None:
        """Let the client's server lag at least `seconds` behind, from the next
        transaction on. 0 ends the lag.
        """
        self._lags[name] = seconds

    def hold_back(self, name: str, seconds: float) -> None:
        """Send no transaction to the client's server for `seconds`, and then send all of them at once.

        The client may never see a state that lasted less than this time. A slow ZooKeeper follower catches up
        in the same way.
        """
        self.note(name, f"held back for {seconds:.3f}")
        self._held_back[name] = asyncio.get_running_loop().time() + seconds

    # --- what servers do ---

    def note(self, name: str, what: str) -> None:
        if self._observe is not None:
            self._observe(name, what)

    def is_cut(self, name: str) -> bool:
        return name in self._cut

    def was_cut(self, name: str, since: float) -> bool:
        """Return whether the client was cut off at any time after `since`."""
        return self.is_cut(name) or self._healed_at.get(name, -1.0) >= since

    def draw_delay(self) -> float:
        return self.rng.uniform(*self.conditions.delay)

    def draw_lag(self, name: str) -> float:
        return self.rng.uniform(*self.conditions.lag) + self._lags.get(name, 0.0)

    def held_back_until(self, name: str) -> float:
        """Return the time until which the client's server gets no transactions."""
        return self._held_back.get(name, 0.0)

    def loses_answer(self, name: str) -> bool:
        """Return whether to lose the answer to the write that was just executed."""
        left = self._losses.get(name, 0)
        if left:
            self._losses[name] = left - 1
        return left > 0

    def begin_session(self, name: str) -> int:
        self._last_session += 1
        self.note(name, f"session {self._last_session} begins")
        self._sessions[self._last_session] = _ServedSession(self, self._last_session, name)
        return self._last_session

    def session(self, number: int) -> _ServedSession | None:
        """Return the session with this number; None if it has ended."""
        return self._sessions.get(number)

    def end_session(self, number: int) -> None:
        session = self._sessions.pop(number, None)
        if session is None:
            return
        self.note(session.name, f"session {number} ends")
        session.end()
        owned = self.tree.owned_by(number)
        if owned:
            self.commit([Delete(path) for path in owned], number)

    def commit(self, operations: Sequence[Operation], session: int) -> list[int]:
        """Execute a transaction, and send it to all servers. Return the new versions."""
        versions, changes = self.tree.apply(operations, session)
        if self._on_commit is not None:
            self._on_commit(operations, changes)
        for served in list(self._sessions.values()):
            if served.link is not None:
                served.link.follow(changes, self.tree.transaction)
        return versions


class _ServedSession:
    """A session in the ensemble's list."""

    def __init__(self, ensemble: SimulatedEnsemble, number: int, name: str) -> None:
        self.name = name
        self.link: _Link | None = None
        self._ensemble = ensemble
        self._number = number
        self._loop = asyncio.get_running_loop()
        self._heard_at = self._loop.time()
        self._timer = self._set_timer()

    def heard(self) -> None:
        """Restart the session timeout, because the client has sent a message."""
        self._heard_at = self._loop.time()

    def end(self) -> None:
        self._timer.cancel()
        if self.link is not None:
            self.link.close()

    def _set_timer(self) -> asyncio.TimerHandle:
        at = self._heard_at + self._ensemble.conditions.session_timeout
        return self._loop.call_at(at, self._check, context=self._ensemble.context)

    def _check(self) -> None:
        if self._loop.time() >= self._heard_at + self._ensemble.conditions.session_timeout:
            self._ensemble.end_session(self._number)
        else:
            self._timer = self._set_timer()


class _Pending:
    """A request, from its call to its answer."""

    __slots__ = ("future", "is_sync", "on_answer", "operations", "read")

    def __init__(
        self,
        read: Callable[[Tree], Any] | None,
        operations: Sequence[Operation] = (),
        on_answer: Callable[[], None] | None = None,
        *,
        is_sync: bool = False,
    ) -> None:
        self.read = read
        #: answered only when the server has caught up with what was written before
        self.is_sync = is_sync
        self.operations = operations
        #: called when the answer comes, before anything that comes behind it
        self.on_answer = on_answer
        self.future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

    def break_off(self) -> None:
        if self.future.done():
            return
        if self.read is None:
            self.future.set_exception(UnknownOutcomeError("the connection broke before the answer came"))
        else:
            self.future.set_exception(StoreUnavailableError("the connection broke before the answer came"))


class _Link:
    """The server's end of one connection, with the nodes that this server knows. It
    executes requests in order.
    """

    def __init__(self, ensemble: SimulatedEnsemble, store: SimulatedStore, session: int) -> None:
        self.is_open = True
        #: something was lost on its way: what comes behind it must never arrive
        self.has_hole = False
        self._ensemble = ensemble
        self._store = store
        self._session = session
        self._loop = asyncio.get_running_loop()
        self._view = ensemble.tree.copy()
        self._requests: deque[_Pending] = deque()
        #: the transactions that this server does not know yet, and when it will
        self._behind: deque[tuple[float, Sequence[Change], int]] = deque()
        self._follows_at = self._arrives_at = self._answers_at = 0.0

    def send(self, pending: _Pending) -> None:
        """Send a request from the client's end."""
        self._requests.append(pending)
        self._arrives_at = self._later(self._arrives_at, self._ensemble.draw_delay())
        self._loop.call_at(self._arrives_at, self._arrive, context=self._ensemble.context)

    def follow(self, changes: Sequence[Change], transaction: int) -> None:
        """Apply a committed transaction to this server, after the lag."""
        # What was asked before is answered without it.
        than = max(self._follows_at, self._answers_at)
        name = self._store.name
        than = max(than, self._ensemble.held_back_until(name))
        self._follows_at = self._later(than, self._ensemble.draw_lag(name))
        self._behind.append((self._follows_at, changes, transaction))
        self._loop.call_at(self._follows_at, self._catch_up, context=self._ensemble.context)

    def close(self) -> None:
        self.is_open = False

    def _arrive(self) -> None:
        pending = self._requests.popleft()
        if self._ensemble.is_cut(self._store.name):
            self.has_hole = True
            return
        if not self.is_open and (pending.read is not None or self._ensemble.rng.random() < 0.5):
            return  # what was on its way when the connection broke may still be carried out
        session = self._ensemble.session(self._session)
        if session is None:
            return
        session.heard()
        try:
            if pending.read is None:
                result: Any = self._ensemble.commit(pending.operations, self._session)
            else:
                result = pending.read
        except Exception as error:
            self._answer_when_known(pending, None, error)
            return
        if pending.read is None:
            self._ensemble.note(self._store.name, f"transaction {self._ensemble.tree.transaction}")
            if self.is_open and self._ensemble.loses_answer(self._store.name):
                self._ensemble.note(self._store.name, "its answer is lost")
                self._store.break_soon()
                return
        self._answer_when_known(pending, result, None)

    def _answer_when_known(self, pending: _Pending, result: Any, error: Exception | None) -> None:
        """Answer a request after all earlier ones; a write or a sync only when this server has applied it."""
        catches_up = pending.read is None or pending.is_sync
        than = max(self._answers_at, self._follows_at) if catches_up else self._answers_at
        self._answers_at = self._later(than, 0.0)
        self._loop.call_at(
            self._answers_at, self._answer, pending, result, error, context=self._ensemble.context
        )

    def _answer(self, pending: _Pending, result: Any, error: Exception | None) -> None:
        if pending.read is not None and error is None:
            try:
                result = pending.read(self._view)
            except Exception as refused:
                error = refused
        self._deliver(self._store.answered, pending, result, error)

    def _catch_up(self) -> None:
        _, changes, transaction = self._behind.popleft()
        if not self.is_open:
            return
        self._view.replay(changes, transaction)
        for change in changes:
            self._deliver(self._store.heard_of, change)

    def _deliver(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Send a message to the client. Messages arrive in order, unless the connection breaks first."""
        self._store.arrives_at = self._later(self._store.arrives_at, self._ensemble.draw_delay())

        def arrive() -> None:
            if self._ensemble.is_cut(self._store.name):
                self.has_hole = True
            elif self.is_open:
                callback(*arguments)

        self._loop.call_at(self._store.arrives_at, arrive, context=self._store.context)

    def _later(self, than: float, delay: float) -> float:
        """Return a time after `than`, plus a random delay, so that no two timers have the same time."""
        return max(self._loop.time() + delay, math.nextafter(than, math.inf))


class SimulatedStore(SingleOperations):
    """A client of a `SimulatedEnsemble`. It reconnects by itself, as a ZooKeeper client does."""

    def __init__(self, ensemble: SimulatedEnsemble, name: str) -> None:
        self.name = name
        #: what calls back into the client belongs to its process
        self.context: Context = copy_context()
        #: when the last thing sent to it arrives
        self.arrives_at = 0.0
        self._ensemble = ensemble
        self._loop = asyncio.get_running_loop()
        self._session = StoreSession(SessionState.SUSPENDED)
        self._session_id = 0
        self._watches = Watches()
        self._link: _Link | None = None
        self._in_flight: dict[_Pending, None] = {}
        self._heard_at = self._loop.time()
        self._overdue: asyncio.TimerHandle | None = None
        self._ping: asyncio.TimerHandle | None = None
        self._connecting = self._loop.create_task(self._connect(at_once=True))

    @property
    def connecting(self) -> asyncio.Task[None]:
        """A task that ends when a session has begun."""
        return self._connecting

    @property
    def session_id(self) -> int:
        return self._session_id

    @property
    def session_timeout(self) -> float:
        return self._ensemble.conditions.session_timeout

    @property
    def state(self) -> SessionState:
        return self._session.state

    @property
    def is_certain(self) -> bool:
        return (
            self._session.state is SessionState.CONNECTED
            and self._loop.time() < self._heard_at + CERTAIN_PART * self.session_timeout
        )

    def on_state(self, listener: SessionListener) -> Cancel:
        return self._session.on_state(listener)

    async def get(self, path: str) -> StoreNode:
        return await self._read(lambda tree: tree.get(path))

    async def exists(self, path: str) -> StoreNode | None:
        return await self._read(lambda tree: tree.find(path))

    async def read(self, paths: Sequence[str]) -> list[StoreNode | None]:
        return await self._read(lambda tree: [tree.find(path) for path in paths])

    async def children(self, path: str) -> list[str]:
        return await self._read(lambda tree: tree.children(path))

    async def multi(self, operations: Sequence[Operation]) -> list[int]:
        size = sum(len(o.path) + (len(o.data) if isinstance(o, Create | Set) else 0) for o in operations)
        if size > self._ensemble.conditions.largest_transaction:
            raise TransactionTooLargeError(f"a transaction of {size} bytes is too large")
        versions: list[int] = await self._ask(_Pending(None, tuple(operations)))
        return versions

    async def watch(self, path: str, watcher: Watcher) -> Cancel:
        # It is added in the order of events: what the server knew when it answered is not reported.
        cancels: list[Cancel] = []
        added = lambda: cancels.append(self._watches.add(path, watcher))  # noqa: E731
        await self._ask(_Pending(lambda _: None, on_answer=added))
        return cancels[0]

    async def sync(self) -> None:
        await self._ask(_Pending(lambda _: None, is_sync=True))

    async def close(self) -> None:
        if self._session.state is SessionState.CLOSED:
            return
        number, link = self._session_id, self._link
        self._stop_connecting()
        self._hang_up()
        self._watches.clear()
        self._session.enter(SessionState.CLOSED)
        if link is not None and link.is_open and not self._ensemble.is_cut(self.name):
            await asyncio.sleep(self._ensemble.draw_delay())
            self._ensemble.end_session(number)

    # --- called by the ensemble, in the context of the client's process ---

    @property
    def has_hole(self) -> bool:
        """Return whether messages were lost on the connection although it is still open."""
        return self._link is not None and self._link.has_hole

    def break_soon(self) -> None:
        """Break the connection as soon as the process runs."""
        self._loop.call_soon(self._break, self._link, context=self.context)

    def answered(self, pending: _Pending, result: Any, error: Exception | None) -> None:
        self._heard_at = self._loop.time()
        self._in_flight.pop(pending, None)
        if pending.future.done():  # whoever asked has gone
            return
        if error is not None:
            pending.future.set_exception(error)
            return
        if pending.on_answer is not None:
            pending.on_answer()
        pending.future.set_result(result)

    def heard_of(self, change: Change) -> None:
        self._heard_at = self._loop.time()
        self._watches.report(change.event, change.path)

    # --- inside ---

    async def _read(self, read: Callable[[Tree], T]) -> T:
        found: T = await self._ask(_Pending(read))
        return found

    async def _ask(self, pending: _Pending) -> Any:
        if self._session.state is not SessionState.CONNECTED or self._link is None:
            raise StoreUnavailableError(f"there is no session with the ensemble ({self.state.value})")
        self._in_flight[pending] = None
        self._link.send(pending)
        return await pending.future

    def _break(self, link: _Link | None) -> None:
        """Note that a connection is broken, and reconnect."""
        if link is None or link is not self._link or self._session.state in FINAL:
            return
        self._ensemble.note(self.name, "connection broken")
        self._hang_up()
        self._session.enter(SessionState.SUSPENDED)
        self._overdue = self._loop.call_later(self.session_timeout, self._session.enter, SessionState.OVERDUE)
        self._connecting = self._loop.create_task(self._connect())

    def _hang_up(self) -> None:
        link, self._link = self._link, None
        if link is not None:
            link.close()
        for timer in (self._ping, self._overdue):
            if timer is not None:
                timer.cancel()
        pending, self._in_flight = self._in_flight, {}
        for request in pending:
            request.break_off()

    def _stop_connecting(self) -> None:
        if not self._connecting.done():
            self._connecting.cancel()

    async def _connect(self, *, at_once: bool = False) -> None:
        ensemble = self._ensemble
        while True:
            if not at_once:
                await asyncio.sleep(ensemble.rng.uniform(*ensemble.conditions.reconnect))
            at_once = False
            await asyncio.sleep(ensemble.draw_delay() + ensemble.draw_delay())
            if not ensemble.is_cut(self.name):
                break
        session = ensemble.session(self._session_id)
        if session is None:
            if self._session_id:
                self._session.enter(SessionState.LOST)
            self._session_id = ensemble.begin_session(self.name)
            session = ensemble.session(self._session_id)
            assert session is not None
        session.heard()
        self._link = session.link = _Link(ensemble, self, self._session_id)
        if self._overdue is not None:
            self._overdue.cancel()
        self._heard_at = self._loop.time()
        self._say_alive()
        ensemble.note(self.name, f"connected, session {self._session_id}")
        self._session.enter(SessionState.CONNECTED)

    def _say_alive(self) -> None:
        """Send pings at intervals, and break the connection if the server has been silent for too long."""
        session = self._ensemble.session(self._session_id)
        if not self._ensemble.is_cut(self.name):
            if session is None:
                self._break(self._link)
                return
            session.heard()
            self._heard_at = self._loop.time()
        elif self._loop.time() - self._heard_at >= _PATIENCE * self.session_timeout:
            self._break(self._link)
            return
        self._ping = self._loop.call_later(self.session_timeout / _PINGS, self._say_alive)
