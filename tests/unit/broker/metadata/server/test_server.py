"""The served store: sessions, and faults of clients, of the disk and of the server."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.relay import Relay, relay
from tests.zookeeper import opened, until, until_true

from barnabas.base.environment.environment import Environment
from barnabas.broker.metadata.embedded import EmbeddedStore
from barnabas.broker.metadata.server import connection as connections
from barnabas.broker.metadata.server import sessions
from barnabas.broker.metadata.server.thread import StoreServerThread
from barnabas.broker.metadata.store import (
    Create,
    Event,
    SessionState,
    StoreUnavailableError,
    UnknownOutcomeError,
)
from barnabas.broker.metadata.zookeeper.address import ZooKeeperAddress, parse_address
from barnabas.broker.metadata.zookeeper.store import ZooKeeperStore

CONNECTED, SUSPENDED, OVERDUE = SessionState.CONNECTED, SessionState.SUSPENDED, SessionState.OVERDUE
LOST = SessionState.LOST
Scenario = Callable[[ZooKeeperStore, ZooKeeperStore, Relay], Awaitable[Any]]

TICK = 0.1
#: seconds; a session timeout that is over soon, and is longer than a busy machine stands still
SHORT = 8.0


def address_of(server: StoreServerThread) -> ZooKeeperAddress:
    return parse_address(server.address)


def play(folder: Path, scenario: Scenario, session_timeout: float = 30.0) -> None:
    """Run a scenario with a store behind a relay, and with another store that sees all changes."""

    async def session(server: StoreServerThread) -> None:
        target = address_of(server).socket_path or ""
        async with relay(target) as cut, opened(address_of(server)) as witness:
            through = ZooKeeperAddress((cut.address,))
            async with opened(through, session_timeout) as store:
                await scenario(store, witness, cut)

    with StoreServerThread([folder], tick=TICK) as server:
        asyncio.run(session(server))


def test_broken_connection_suspends_the_session_and_it_goes_on_with_its_nodes(tmp_path: Path) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        heard: list[tuple[Event, str]] = []
        await store.watch("/", lambda event, path: heard.append((event, path)))
        await store.create("/mine", ephemeral=True)
        before = store.session_id
        cut.cut()
        await until(store, SUSPENDED)
        await witness.create("/unheard")
        cut.heal()
        await until(store, CONNECTED)
        assert store.session_id == before == (await witness.get("/mine")).owner
        assert await store.exists("/unheard") is not None
        await witness.create("/heard")
        await until_true(lambda: heard == [(Event.CREATED, "/mine"), (Event.CREATED, "/heard")])

    play(tmp_path, scenario)


def test_session_that_stays_away_is_lost_its_nodes_go_and_another_one_follows(tmp_path: Path) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        gone: list[str] = []
        await witness.watch(
            "/mine", lambda event, path: gone.append(path) if event is Event.DELETED else None
        )
        await store.create("/mine", ephemeral=True)
        before = store.session_id
        cut.cut()
        await until(store, OVERDUE)
        assert not store.is_certain
        await until_true(lambda: bool(gone))
        cut.heal()
        await until(store, LOST)
        await until(store, CONNECTED)
        assert store.session_id != before
        await store.create("/mine", ephemeral=True)

    play(tmp_path, scenario, SHORT)


def test_lost_answer_to_a_write_is_an_unknown_outcome_and_a_later_read_shows_it(tmp_path: Path) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        done: list[str] = []
        await witness.watch("/", lambda event, path: done.append(path))
        cut.mute = True
        creation = asyncio.create_task(store.create("/mine", ephemeral=True))
        await until_true(lambda: bool(done))
        cut.cut()
        with pytest.raises(UnknownOutcomeError):
            await creation
        await until(store, SUSPENDED)
        cut.heal()
        await until(store, CONNECTED)
        assert (await store.get("/mine")).owner == store.session_id
        assert done == ["/mine"]

    play(tmp_path, scenario)


def test_responses_come_in_order_though_writes_wait_for_the_disk(tmp_path: Path) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        order: list[str] = []

        async def noted(name: str, call: Awaitable[Any]) -> Any:
            try:
                return await call
            finally:
                order.append(name)

        calls = []
        for number in range(4):
            calls.append(noted(f"write {number}", store.create(f"/n{number}")))
            calls.append(noted(f"read {number}", store.exists(f"/n{number}")))
        results = await asyncio.gather(*calls)
        assert order == [f"{kind} {number}" for number in range(4) for kind in ("write", "read")]
        assert None not in results[1::2]

    play(tmp_path, scenario)


def test_session_of_a_process_that_has_ended_is_ended_at_once(tmp_path: Path) -> None:
    async def session(server: StoreServerThread) -> None:
        async with opened(address_of(server)) as witness, opened(address_of(server)) as store:
            gone: list[Event] = []
            await store.create("/mine", ephemeral=True)
            await witness.watch("/mine", lambda event, path: gone.append(event))
            server.end_owner_of("/none")
            server.end_owner_of("/mine")
            await until_true(lambda: gone == [Event.DELETED])

    with StoreServerThread([tmp_path]) as server:
        asyncio.run(session(server))


def test_request_that_is_read_after_the_end_of_its_session_creates_nothing(tmp_path: Path) -> None:
    """A broker was killed, and its last request is still in the socket. Nothing would delete the node."""

    async def session(server: StoreServerThread) -> None:
        async with opened(address_of(server)) as witness, opened(address_of(server)) as store:
            await store.create("/mine", ephemeral=True)
            gone = asyncio.Event()
            await witness.watch("/mine", lambda event, path: gone.set())
            server.end_owner_of("/mine")
            await gone.wait()
            with pytest.raises(StoreUnavailableError):
                await store.create("/late", ephemeral=True)
            await witness.sync()
            assert await witness.children("/") == []

    with StoreServerThread([tmp_path]) as server:
        asyncio.run(session(server))


def test_a_later_start_has_everything_but_ephemeral_nodes_and_no_number_comes_again(tmp_path: Path) -> None:
    async def first(server: StoreServerThread) -> int:
        async with opened(address_of(server)) as store:
            await store.create("/kept", b"x")
            await store.create("/mine", ephemeral=True)
            created = (await store.get("/mine")).created
            server.stop()
            return created

    async def second(server: StoreServerThread, before: int) -> None:
        async with opened(address_of(server)) as store:
            assert await store.children("/") == ["kept"]
            await store.create("/mine", ephemeral=True)
            assert (await store.get("/mine")).created > before

    with StoreServerThread([tmp_path]) as server:
        created = asyncio.run(first(server))
    with StoreServerThread([tmp_path]) as server:
        asyncio.run(second(server, created))


def test_store_of_a_lone_broker_is_served_and_the_other_way_round(tmp_path: Path) -> None:
    async def alone(number: int) -> list[str]:
        store = await EmbeddedStore.open(Environment.of_system(), tmp_path)
        await store.create(f"/alone-{number}")
        names = await store.children("/")
        await store.close()
        return names

    async def together(server: StoreServerThread) -> list[str]:
        async with opened(address_of(server)) as store:
            await store.create("/together")
            return await store.children("/")

    asyncio.run(alone(1))
    with StoreServerThread([tmp_path]) as server:
        assert asyncio.run(together(server)) == ["alone-1", "together"]
        with pytest.raises(StoreUnavailableError, match="in use by another broker"):
            asyncio.run(alone(2))
        with pytest.raises(StoreUnavailableError, match="in use by another broker"):
            StoreServerThread([tmp_path]).start()
    assert asyncio.run(alone(3)) == ["alone-1", "alone-3", "together"]


def test_disk_that_fails_refuses_writes_and_nodes_of_a_lost_session_go_when_it_is_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sessions, "_RETRY", 0.05)

    def full(*_: Any) -> None:
        raise StoreUnavailableError("the disk is full")

    async def session(server: StoreServerThread) -> None:
        async with opened(address_of(server)) as witness:
            store = await ZooKeeperStore.open(address_of(server), session_timeout=30.0)
            await store.create("/mine", ephemeral=True)
            with monkeypatch.context() as patch:
                patch.setattr(server._server.tree._disk[0], "commit", full)
                with pytest.raises(StoreUnavailableError) as refused:
                    await witness.create("/a")
                assert not isinstance(refused.value, UnknownOutcomeError)
                server.end_owner_of("/mine")
                await witness.sync()
                assert await witness.children("/") == ["mine"]
            async with asyncio.timeout(30):
                while await witness.children("/"):
                    await asyncio.sleep(0.02)
            await witness.create("/a")
            await store.close()

    with StoreServerThread([tmp_path]) as server:
        asyncio.run(session(server))


def test_server_that_stood_still_ends_no_session_of_a_client_that_did_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def session(server: StoreServerThread) -> None:
        async with opened(address_of(server), SHORT) as store:
            await store.create("/mine", ephemeral=True)
            before = store.session_id
            noticed = threading.Event()
            server._loop.call_soon_threadsafe(noticed.wait)
            try:
                await until(store, OVERDUE)
            finally:
                noticed.set()
            await until(store, CONNECTED)
            assert store.session_id == before
            assert (await store.get("/mine")).owner == before

    with StoreServerThread([tmp_path], tick=TICK) as server:
        asyncio.run(session(server))
    assert "has sent nothing" not in caplog.text


@pytest.mark.parametrize(
    "sent",
    [
        (connections.MAX_FRAME + 1).to_bytes(4),
        b"\xff\xff\xff\xff",
        b"\x00\x00\x00\x02\x00\x00",
        b"GET / HTTP/1.1\r\n\r\n",
    ],
    ids=["too large", "negative", "too short", "of another protocol"],
)
def test_bytes_that_are_no_request_end_that_connection_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, sent: bytes
) -> None:
    async def session(server: StoreServerThread) -> None:
        async with opened(address_of(server)) as store:
            with socket.socket(socket.AF_UNIX) as stranger:
                stranger.settimeout(30)
                stranger.connect(address_of(server).socket_path or "")
                stranger.sendall(sent)
                with contextlib.suppress(ConnectionResetError):
                    assert stranger.recv(100) == b""
            await store.create("/a")

    with StoreServerThread([tmp_path]) as server:
        asyncio.run(session(server))
    assert "is disconnected: a request" in caplog.text


def test_client_that_does_not_read_is_disconnected_and_holds_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(connections, "MAX_UNREAD", 100_000)

    async def session(server: StoreServerThread) -> None:
        async with opened(address_of(server)) as store:
            with socket.socket(socket.AF_UNIX) as deaf:
                deaf.settimeout(30)
                deaf.connect(address_of(server).socket_path or "")
                deaf.sendall(bytes.fromhex("0000002d") + b"\0" * 12 + bytes.fromhex("00007530") + b"\0" * 8)
                deaf.sendall(bytes.fromhex("00000010") + b"\0" * 17)
                assert len(deaf.recv(100)) > 0
                deaf.sendall(bytes.fromhex("000000110000000100 00006a 000000012f 00000001"))
                assert len(deaf.recv(100)) > 0
                name = "x" * 2000
                for number in range(500):
                    await store.create(f"/{number}-{name}", ephemeral=True)
                    if "does not read" in caplog.text:
                        return
        pytest.fail("it stays connected")

    with StoreServerThread([tmp_path]) as server:
        asyncio.run(session(server))


def test_connections_and_sessions_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MAX_SESSIONS", 2)

    async def session(server: StoreServerThread) -> None:
        async with opened(address_of(server)), opened(address_of(server)) as store:
            with pytest.raises(StoreUnavailableError):
                await ZooKeeperStore.open(address_of(server), session_timeout=30, connection_timeout=0.5)
            await store.create("/a")

    with StoreServerThread([tmp_path]) as server:
        asyncio.run(session(server))


def test_large_transaction_and_many_events_arrive_whole(tmp_path: Path) -> None:
    async def scenario(store: ZooKeeperStore, witness: ZooKeeperStore, cut: Relay) -> None:
        heard: list[str] = []
        await witness.watch("/", lambda event, path: heard.append(path))
        await store.multi([Create(f"/n{number}", bytes(330)) for number in range(2500)])
        await until_true(lambda: len(heard) == 2500)
        assert heard == [f"/n{number}" for number in range(2500)]
        assert all(await witness.read(heard))

    play(tmp_path, scenario)


def test_server_that_cannot_go_on_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures: list[BaseException] = []
    failed = threading.Event()

    def on_failure(error: BaseException) -> None:
        failures.append(error)
        failed.set()

    with StoreServerThread([tmp_path], tick=TICK, on_failure=on_failure) as server:
        monkeypatch.setattr(server._server.sessions, "_sessions", None)
        assert failed.wait(30)
    assert [type(error) for error in failures] == [AttributeError]


def test_only_this_user_can_reach_the_socket_and_it_goes_at_the_stop(tmp_path: Path) -> None:
    with StoreServerThread([tmp_path]) as server:
        path = Path(address_of(server).socket_path or "")
        assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
        assert path.exists()
    assert not path.parent.exists()
