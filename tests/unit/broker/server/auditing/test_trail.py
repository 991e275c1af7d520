"""The audit log as a file: its entries, the counted ones, and that no request waits for it."""

from __future__ import annotations

import asyncio
import json
import stat
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from simulation.clocks import ManualClock

from barnabas.base.environment.blocking import Threads
from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.auditing import trail as trails
from barnabas.broker.server.auditing.trail import CHANGE, DENIED, LOGIN, LOGIN_FAILED, AuditTrail
from barnabas.kafka.security.principal import Principal


class Alice:
    client_host = "192.0.2.7"
    principal = Principal("alice")
    listener = "SASL_SSL"


def config_of(path: Path, **settings: str) -> BrokerConfig:
    return BrokerConfig.from_text({"node.id": "3", "barnabas.audit.file": str(path), **settings})


def make_environment() -> Environment:
    """Return the system's environment, with a clock that the test moves."""
    return replace(Environment.of_system(), clock=ManualClock())


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def run(path: Path, use: Any, **settings: str) -> list[dict[str, Any]]:
    """Return the entries of the file after `use` had the audit log."""

    async def scenario() -> None:
        trail = AuditTrail(config_of(path, **settings), make_environment())
        try:
            use(trail)
        finally:
            await trail.close()

    asyncio.run(scenario())
    return lines(path)


def test_an_entry_says_who_did_what_when_and_from_where(tmp_path):
    path = tmp_path / "audit.log"
    (entry,) = run(path, lambda trail: trail.note(LOGIN, Alice(), "app", mechanism="PLAIN"))
    assert entry.pop("time").endswith("Z")
    assert entry == {
        "event": "login",
        "broker": 3,
        "principal": "User:alice",
        "host": "192.0.2.7",
        "listener": "SASL_SSL",
        "client_id": "app",
        "mechanism": "PLAIN",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_name_cannot_end_the_line(tmp_path):
    path = tmp_path / "audit.log"
    (entry,) = run(path, lambda trail: trail.note(LOGIN, Alice(), 'x\n{"event": "login"}\ud800'))
    assert entry["client_id"] == 'x\\n{"event": "login"}\\ud800'


def test_what_repeats_itself_is_counted_and_changes_never_are(tmp_path):
    def use(trail: AuditTrail) -> None:
        for _ in range(5):
            trail.note(DENIED, Alice(), request="Produce", denied=[{"topic": "secret"}])
            trail.note(LOGIN_FAILED, Alice(), user="bob")
            trail.note(CHANGE, Alice(), request="CreateTopics")
        trail.note(LOGIN_FAILED, Alice(), user="carol")

    entries = run(tmp_path / "audit.log", use)
    found = [(entry["event"], entry.get("user"), entry.get("repeated")) for entry in entries]
    assert found.count(("change", None, None)) == 5
    assert [each for each in found if each[0] != "change"] == [
        ("denied", None, None),
        ("login failed", "bob", None),
        ("login failed", "carol", None),
        ("denied", None, 4),
        ("login failed", "bob", 4),
    ]


def test_what_comes_too_fast_is_left_out_and_counted(tmp_path, monkeypatch):
    monkeypatch.setattr(trails, "_BURST", 10.0)
    monkeypatch.setattr(trails, "_RATE", 0.0)
    entries = run(tmp_path / "audit.log", lambda trail: [trail.note(CHANGE, Alice()) for _ in range(25)])
    assert [entry["event"] for entry in entries] == ["change"] * 10 + ["omitted"]
    assert entries[-1]["events"] == {"change": 15}


def test_the_loop_does_not_wait_for_a_disk_that_hangs(tmp_path, monkeypatch):
    """The queue for the thread is limited, and the dropped entries are counted."""
    monkeypatch.setattr(trails, "_MAX_WAITING", 3)
    path = tmp_path / "audit.log"
    stuck, let_go = threading.Event(), threading.Event()

    async def scenario() -> None:
        trail = AuditTrail(config_of(path), make_environment())
        append = trail._file.append

        def hang(entries: Any) -> None:
            stuck.set()
            assert let_go.wait(60)
            append(entries)

        monkeypatch.setattr(trail._file, "append", hang)
        trail.note(CHANGE, Alice(), request="first")
        await asyncio.to_thread(stuck.wait, 60)
        for number in range(10):
            trail.note(CHANGE, Alice(), request=str(number))
        let_go.set()
        await trail.close()

    asyncio.run(scenario())
    told = [entry.get("request") or entry["events"] for entry in lines(path)]
    assert told == ["first", "0", "1", "2", {"change": 7}]


def test_what_a_full_disk_refuses_is_counted_and_what_follows_is_whole(tmp_path, caplog):
    path = tmp_path / "audit.log"

    async def scenario() -> None:
        trail = AuditTrail(config_of(path), make_environment())
        file = trail._file._file
        write, full = file.write_at, [True]

        def write_at(chunks: Any, position: int) -> None:
            if full[0]:
                write([chunks[0][:20]], position)
                raise OSError(28, "No space left on device")
            write(chunks, position)

        class Full:
            read_at, truncate, sync, close = file.read_at, file.truncate, file.sync, file.close

        Full.write_at = staticmethod(write_at)
        trail._file._file = Full()
        trail.note(CHANGE, Alice(), request="lost")
        while trail._writing is not None:
            await asyncio.wait([trail._writing])
        full[0] = False
        trail.note(CHANGE, Alice(), request="kept")
        await trail.close()

    asyncio.run(scenario())
    assert [entry.get("request") or entry["events"] for entry in lines(path)] == [{"change": 1}, "kept"]
    assert "No space left" in caplog.text


def test_a_large_file_makes_room_for_a_new_one(tmp_path):
    path = tmp_path / "audit.log"
    settings = {"barnabas.audit.file.max.bytes": "4096", "barnabas.audit.files": "2"}
    for number in range(4):

        def use(trail: AuditTrail, number: int = number) -> None:
            trail.note(CHANGE, Alice(), request=f"{number}" + "x" * 3000)

        run(path, use, **settings)
    names = ["audit.log", "audit.log.1", "audit.log.2"]
    assert [lines(tmp_path / name)[0]["request"][0] for name in names] == ["3", "2", "1"]
    assert sorted(each.name for each in tmp_path.iterdir()) == names


def test_a_torn_last_line_spoils_no_other(tmp_path):
    path = tmp_path / "audit.log"
    path.write_text('{"event": "log')
    asyncio.run(_note_and_close(path))
    torn, whole = path.read_text().splitlines()
    assert torn == '{"event": "log'
    assert json.loads(whole)["event"] == "login"


async def _note_and_close(path: Path) -> None:
    trail = AuditTrail(config_of(path), make_environment())
    trail.note(LOGIN, Alice())
    await trail.close()


def test_two_brokers_do_not_share_a_file(tmp_path):
    async def scenario() -> None:
        first = AuditTrail(config_of(tmp_path / "audit.log"), make_environment())
        with pytest.raises(ConfigError, match="written by another broker"):
            AuditTrail(config_of(tmp_path / "audit.log"), make_environment())
        await first.close()

    asyncio.run(scenario())


def test_a_file_that_cannot_be_written_stops_the_start(tmp_path):
    with pytest.raises(ConfigError, match=r"barnabas\.audit\.file=.*cannot be written"):
        AuditTrail(config_of(tmp_path / "no folder" / "audit.log"), make_environment())


def test_without_a_file_a_denial_is_a_line_of_the_log_once(caplog):
    async def scenario() -> None:
        trail = AuditTrail(BrokerConfig.from_text({}), make_environment())
        assert not trail.has_file
        for _ in range(3):
            trail.note(LOGIN, Alice())
            trail.note(DENIED, Alice(), request="Produce", denied=[{"topic": "a\nb", "error": "NO"}])
        await trail.close()

    caplog.set_level("INFO", "barnabas.audit")
    asyncio.run(scenario())
    assert caplog.messages == [r"denied a request of User:alice at 192.0.2.7: Produce (topic a\nb: NO)"]


def test_threads_are_not_used_without_a_file():
    class NoThreads(Threads):
        def pool(self, name: str, threads: int) -> Any:
            raise AssertionError(name)

    AuditTrail(BrokerConfig.from_text({}), replace(make_environment(), blocking=NoThreads()))
