"""A session with a real ZooKeeper, and its requests, when the connection breaks."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol.connection import ConnectionHandler
from tests.relay import Relay, relay
from tests.zookeeper import PATIENT, new_chroot, opened, until, until_true

from barnabas.broker.metadata.store import (
    Create,
    Event,
    NodeExistsError,
    SessionState,
    StoreError,
    StoreUnavailableError,
    TransactionTooLargeError,
    UnknownOutcomeError,
)
from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress, parse_address
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore

CONNECTED, SUSPENDED, OVERDUE = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.OVERDUE
LOST, FAILED, CLOSED = SessionState.LOST, SessionState.FAILED, SessionState.CLOSED

Scenario = Callable[[ZooKeeperStore, ZooKeeperStore, Relay], Awaitable[Any]]

#: seconds; a session timeout that is over soon, and is longer than a busy machine stands still
SHORT = 8.0


def play(server: ZooKeeperServer, scenario: Scenario, session_timeout: float = 30.0) -> None:
    """Run a scenario with a store behind a relay, and with another store that sees all changes."""

    async def session() -> None:
        address = new_chroot(server.address)
        async with relay(server.port) as cut, opened(address) as witness:
            through = ZooKeeperAddress((cut.address,), address.chroot)
            async with opened(through, session_timeout) as store:
                await scenario(store, witness, cut)

    asyncio.run(session())


def test_broken_connection_suspends_the_session_and_it_goes_on_with_its_nodes(
    zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        states: list[SessionState] = []
        store.on_state(states.append)
        await store.create("/mine", ephemeral=True)
        before = store.session_id
        cut.cut()
        await until(store, SUSPENDED)
        with pytest.raises(StoreUnavailableError, match="suspended") as refused:
            await store.set("/mine", b"x")
        assert not isinstance(refused.value, UnknownOutcomeError)
        cut.heal()
        await until(store, CONNECTED)
        assert states == [SUSPENDED, CONNECTED]
        assert store.session_id == before == (await witness.get("/mine")).owner
        assert await store.set("/mine", b"x") == 1

    play(zookeeper, scenario)
    assert "broke (Connection dropped: socket connection" in caplog.text


def test_watch_is_set_again_and_what_changed_meanwhile_went_unheard(zookeeper: ZooKeeperServer) -> None:
    """A listener must read everything again (apache/zookeeper 1950, kazoo 151)."""

    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        heard: list[tuple[Event, str]] = []
        await store.watch("/", lambda event, path: heard.append((event, path)))
        cut.cut()
        await until(store, SUSPENDED)
        await witness.create("/unheard")
        cut.heal()
        await until(store, CONNECTED)
        assert await store.exists("/unheard") is not None
        await witness.create("/heard")
        await until_true(lambda: bool(heard))
        assert heard == [(Event.CREATED, "/heard")]

    play(zookeeper, scenario)


def test_session_that_stays_away_is_overdue_then_lost_and_another_one_follows(
    own_zookeeper: ZooKeeperServer,
) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        states: list[SessionState] = []
        store.on_state(states.append)
        heard: list[str] = []
        gone: list[str] = []
        await store.watch("/", lambda event, path: heard.append(path))
        await witness.watch(
            "/mine", lambda event, path: gone.append(path) if event is Event.DELETED else None
        )
        await store.create("/mine", ephemeral=True)
        before = store.session_id
        assert store.is_certain
        cut.cut()
        await until(store, OVERDUE)
        assert not store.is_certain
        await until_true(lambda: bool(gone))
        cut.heal()
        await until(store, LOST)
        assert store.session_id == before
        await until(store, CONNECTED)
        assert states == [SUSPENDED, OVERDUE, LOST, CONNECTED]
        assert store.session_id != before
        assert await store.exists("/mine") is None
        await store.create("/mine", ephemeral=True)
        assert heard == ["/mine", "/mine"]

    play(own_zookeeper, scenario, SHORT)


def test_session_ends_when_the_event_loop_stands_still_for_longer_than_it_lives(
    own_zookeeper: ZooKeeperServer,
) -> None:
    """Otherwise kazoo's thread would keep the session of a broker alive that serves no client."""

    async def scenario() -> None:
        async with opened(new_chroot(own_zookeeper.address), SHORT) as store:
            states: list[SessionState] = []
            store.on_state(states.append)
            await store.create("/mine", ephemeral=True)
            before = store.session_id
            time.sleep(2 * SHORT)
            # A request that is served now comes before the news of the session.
            assert store.state is CONNECTED
            assert not store.is_certain
            await until_true(lambda: states[-1:] == [CONNECTED])
            assert LOST in states
            assert store.session_id != before
            assert await store.exists("/mine") is None

    asyncio.run(scenario())


def test_lost_answer_to_a_create_is_an_unknown_outcome_and_the_node_is_found_after_it(
    zookeeper: ZooKeeperServer,
) -> None:
    """A write that may have been executed is never repeated without a read (kazoo 757)."""

    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        done: list[str] = []
        await witness.watch("/", lambda event, path: done.append(path))
        cut.mute = True
        creation = asyncio.create_task(store.create("/mine", ephemeral=True))
        reading = asyncio.create_task(store.get("/"))
        await until_true(lambda: bool(done))
        cut.cut()
        with pytest.raises(UnknownOutcomeError):
            await creation
        with pytest.raises(StoreUnavailableError) as lost:
            await reading
        assert not isinstance(lost.value, UnknownOutcomeError)
        await until(store, SUSPENDED)  # requests fail before the state changes
        cut.heal()
        await until(store, CONNECTED)
        assert (await store.get("/mine")).owner == store.session_id
        assert done == ["/mine"]

    play(zookeeper, scenario)


def test_requests_that_were_not_sent_yet_have_changed_nothing(zookeeper: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        cut.mute = True
        creations = [asyncio.create_task(store.create(f"/n{number}")) for number in range(30)]
        await asyncio.sleep(0)
        cut.cut()
        errors = await asyncio.gather(*creations, return_exceptions=True)
        unknown = [isinstance(error, UnknownOutcomeError) for error in errors]
        assert unknown == [True] * 10 + [False] * 20
        assert all(isinstance(error, StoreUnavailableError) for error in errors)
        await until(store, SUSPENDED)
        cut.heal()
        await until(store, CONNECTED)
        names = await store.children("/")
        assert set(names) <= {f"n{number}" for number in range(10)}

    play(zookeeper, scenario)


def test_session_goes_on_after_zookeeper_was_killed_and_started_again(own_zookeeper: ZooKeeperServer) -> None:
    async def scenario() -> None:
        async with opened(new_chroot(own_zookeeper.address)) as store:
            await store.create("/kept", b"x")
            await store.create("/mine", ephemeral=True)
            before = store.session_id
            own_zookeeper.kill()
            await until(store, SUSPENDED)
            await asyncio.to_thread(own_zookeeper.start, 120)
            await until(store, CONNECTED)
            assert store.session_id == before
            assert (await store.get("/kept")).data == b"x"
            assert (await store.get("/mine")).owner == before

    asyncio.run(scenario())


def test_server_that_takes_a_connection_and_never_answers_leaves_time_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A ZooKeeper that is starting may do this. kazoo would wait for the whole session timeout."""
    patience: list[float] = []

    def connect(sockets: Any, address: Any, timeout: float, **options: Any) -> socket.socket:
        patience.append(timeout)
        return socket.create_connection(address)

    def ask(handler: Any, timeout: float, request: Any, xid: int | None = None) -> None:
        patience.append(timeout)
        raise ConnectionDropped("no answer")

    monkeypatch.setattr(SequentialThreadingHandler, "create_connection", connect)
    monkeypatch.setattr(ConnectionHandler, "_invoke", ask)

    async def session() -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            servers = (f"127.0.0.1:{server.getsockname()[1]}",)
            opening = asyncio.create_task(
                ZooKeeperStore.open(ZooKeeperAddress(servers), session_timeout=30.0)
            )
            await until_true(lambda: len(patience) > 4)
            opening.cancel()
            await asyncio.wait([opening])

    asyncio.run(session())
    assert set(patience) == {10.0}


def test_zookeeper_that_stands_still_is_noticed_and_watched_again_when_it_goes_on(
    own_zookeeper: ZooKeeperServer,
) -> None:
    async def scenario() -> None:
        address = new_chroot(own_zookeeper.address)
        async with opened(address, SHORT) as store:
            heard: list[str] = []
            await store.watch("/", lambda event, path: heard.append(path))
            own_zookeeper.pause()
            writing = asyncio.create_task(store.create("/a"))
            await until(store, OVERDUE)
            with pytest.raises(UnknownOutcomeError):
                await writing
            own_zookeeper.resume()
            await until(store, CONNECTED)
            async with opened(address) as other:
                await other.create("/b")
            await until_true(lambda: "/b" in heard)

    asyncio.run(scenario())


def test_close_ends_the_session_at_once_and_while_zookeeper_stands_still_it_does_not_hang(
    own_zookeeper: ZooKeeperServer, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        address = new_chroot(own_zookeeper.address)
        async with opened(address) as witness:
            gone: list[Event] = []
            await witness.watch("/mine", lambda event, path: gone.append(event))
            async with opened(address) as store:
                await store.create("/mine", ephemeral=True)
            await until_true(lambda: Event.DELETED in gone)
        async with opened(address) as hanging:
            own_zookeeper.pause()
            waiting = asyncio.create_task(hanging.get("/"))
            await asyncio.sleep(0)
            await hanging.close()
            assert hanging.state is CLOSED
            with pytest.raises(StoreUnavailableError, match="closed"):
                await waiting

    asyncio.run(scenario())
    assert "could not be told" in caplog.text


def test_refused_authentication_is_said_at_once_and_is_final(zookeeper: ZooKeeperServer) -> None:
    """kazoo stops permanently."""

    async def scenario() -> None:
        with pytest.raises(StoreUnavailableError, match="refused the authentication"):
            await ZooKeeperStore.open(
                new_chroot(zookeeper.address), session_timeout=30, auth=[("no-such-scheme", "x")]
            )

    asyncio.run(scenario())


def test_authentication_refused_at_a_reconnection_fails_the_session(zookeeper: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        states: list[SessionState] = []
        store.on_state(states.append)
        store._connection._client.auth_data.add(("no-such-scheme", "x"))
        cut.cut()
        await until(store, SUSPENDED)
        cut.heal()
        await until(store, FAILED)
        assert states == [SUSPENDED, FAILED]
        with pytest.raises(StoreUnavailableError, match="refused the authentication"):
            await store.get("/")

    play(zookeeper, scenario)


def test_no_zookeeper_there_is_said_with_the_address_and_the_cure() -> None:
    async def scenario() -> None:
        with pytest.raises(StoreUnavailableError, match=r"127\.0\.0\.1:1/x within 8 s .*refused.*start it"):
            await ZooKeeperStore.open(
                parse_address("127.0.0.1:1/x"), session_timeout=30, connection_timeout=SHORT
            )

    asyncio.run(scenario())


def test_two_clusters_in_one_ensemble_see_nothing_of_each_other(zookeeper: ZooKeeperServer) -> None:
    async def scenario() -> None:
        first, second = new_chroot(zookeeper.address), new_chroot(zookeeper.address)
        nested = ZooKeeperAddress(first.servers, f"{first.chroot}{first.chroot}")
        async with opened(first) as one, opened(second) as other, opened(nested) as inner:
            heard: list[str] = []
            await other.watch("/", lambda event, path: heard.append(path))
            await inner.watch("/", lambda event, path: heard.append(path))
            await one.create("/a")
            assert await other.children("/") == []
            await inner.create("/b")
            assert await one.exists(f"{first.chroot}/b") is not None
            assert heard == ["/b"]

    asyncio.run(scenario())


def test_nodes_of_a_client_with_permissions_are_read_by_all_and_written_by_it_alone(
    zookeeper: ZooKeeperServer,
) -> None:
    async def scenario() -> None:
        address = new_chroot(zookeeper.address)
        keeper = await ZooKeeperStore.open(
            address, session_timeout=30, set_acl=True, auth=[("digest", "barnabas:secret")]
        )
        async with opened(address) as stranger:
            await keeper.create("/a", b"x")
            assert await keeper.set("/a", b"y") == 1
            assert (await stranger.get("/a")).data == b"y"
            with pytest.raises(StoreError, match=r"/a: NoAuthError"):
                await stranger.set("/a", b"z")
            for path in ("/config", "/config/users", "/config/users/alice"):
                await keeper.create(path, b"hashed")
            assert (await stranger.get("/config/users")).data == b"hashed"
            with pytest.raises(StoreError, match=r"/config/users/alice: NoAuthError"):
                await stranger.get("/config/users/alice")
            assert (await keeper.get("/config/users/alice")).data == b"hashed"
        await keeper.close()

    asyncio.run(scenario())


def test_transaction_too_large_for_zookeeper_is_refused_and_harms_nobody(zookeeper: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        states: list[SessionState] = []
        store.on_state(states.append)
        with pytest.raises(TransactionTooLargeError, match="divide it"):
            await store.multi([Create(f"/n{number}", bytes(10_000)) for number in range(100)])
        await store.multi([Create(f"/n{number}", bytes(9_900)) for number in range(100)])
        assert len(await store.read([f"/n{number}" for number in range(100)])) == 100
        assert states == []

    play(zookeeper, scenario)


def test_burst_of_events_wakes_the_loop_once(zookeeper: ZooKeeperServer) -> None:
    async def session() -> None:
        address = new_chroot(zookeeper.address)
        async with opened(address) as store:
            heard: list[str] = []
            await store.watch("/", lambda event, path: heard.append(path))
            woken: list[int] = []
            emptied = store.inbox_emptied
            store.inbox_emptied = lambda: (woken.append(len(heard)), emptied())[1]  # type: ignore[method-assign]
            make_nodes(f"127.0.0.1:{zookeeper.port}{address.chroot}", 1000)
            deadline = time.monotonic() + PATIENT
            while len(store._connection._inbox) < 1000:  # this holds the loop, and all events wait for it
                assert time.monotonic() < deadline
                time.sleep(0.01)
            await until_true(lambda: len(heard) == 1000)
            assert heard == [f"/n{number}" for number in range(1000)]
            assert woken[0] == 1000

    asyncio.run(session())


def make_nodes(address: str, count: int) -> None:
    """Create nodes at once, with a client that needs no event loop."""
    client = KazooClient(address, timeout=PATIENT)
    client.start(PATIENT)
    try:
        transaction = client.transaction()
        for number in range(count):
            transaction.create(f"/n{number}")
        assert transaction.commit() == [f"/n{number}" for number in range(count)]
    finally:
        client.stop()
        client.close()


def test_session_of_another_client_does_not_make_a_node_twice(zookeeper: ZooKeeperServer) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        await store.create("/mine", ephemeral=True)
        with pytest.raises(NodeExistsError):
            await witness.create("/mine", ephemeral=True)

    play(zookeeper, scenario)
