"""The fallbacks for functions that a system may lack, called directly. `make test-portable` runs all tests
with them.
"""

from __future__ import annotations

import ast
import asyncio
import errno
import os
import signal
import threading
import types
from pathlib import Path

import pytest

import barnabas
from barnabas.base.system import event_loop, files, limits, locks, signals

#: what only `barnabas.base.system` may use: other systems lack it
MODULES = {"fcntl", "resource", "uvloop", "msvcrt", "_winapi", "pwd", "grp", "termios"}
NAMES = {
    "os": {"pread", "pwrite", "preadv", "pwritev", "sendfile", "fdatasync", "sysconf", "statvfs", "geteuid",
           "getuid", "killpg", "kill", "fork", "O_DIRECTORY", "O_CLOEXEC", "ST_RDONLY"},
    "signal": {"SIGPROF", "SIGKILL", "setitimer", "ITIMER_PROF"},
    "socket": {"SO_REUSEADDR", "AF_UNIX"},
}  # fmt: skip


def test_no_other_package_uses_what_some_systems_lack():
    package = Path(barnabas.__file__).parent
    found = []
    for path in package.rglob("*.py"):
        if path.parent.name == "system":
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            match node:
                case ast.Import(names=names):
                    used = MODULES & {alias.name for alias in names}
                case ast.ImportFrom(module=module, names=names):
                    used = MODULES & {module} or NAMES.get(module or "", set()) & {a.name for a in names}
                case ast.Attribute(value=ast.Name(id=module), attr=attribute):
                    used = NAMES.get(module, set()) & {attribute}
                case ast.Call(func=ast.Attribute(attr="add_signal_handler")):
                    used = {"add_signal_handler"}
                case _:
                    continue
            found += [f"{path.relative_to(package)}:{node.lineno}: {name}" for name in used]
    assert not found, "belongs into barnabas.base.system"


def test_reading_and_writing_after_a_seek_is_as_by_position(tmp_path):
    fd = files.open_file(str(tmp_path / "a"), 0o600, create=True)
    try:
        assert files._write_after_seeking(fd, [b"two", b"", memoryview(b" words")], 4) == 9
        assert files._write_after_seeking(fd, [b"abcd"], 0) == 4
        assert files._read_after_seeking(fd, 100, 0) == b"abcdtwo words"
        assert files._read_after_seeking(fd, 3, 4) == b"two"
        assert files._read_after_seeking(fd, 3, 100) == b""
        os.lseek(fd, 2, os.SEEK_SET)
        files._read_after_seeking(fd, 3, 4)
        assert os.read(fd, 2) == b"cd", "a reader that goes on by itself finds its place again"
    finally:
        os.close(fd)


def test_threads_that_seek_in_one_file_do_not_meet(tmp_path):
    fd = files.open_file(str(tmp_path / "a"), 0o600, create=True)
    files._write_after_seeking(fd, [bytes([number]) * 8 for number in range(100)], 0)
    wrong = []

    def read(numbers):
        for number in numbers:
            data = files._read_after_seeking(fd, 8, 8 * number)
            if data != bytes([number]) * 8:
                wrong.append((number, data))

    threads = [threading.Thread(target=read, args=(list(range(100))[::step] * 20,)) for step in (1, -1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(fd)
    assert not wrong


def test_without_sendfile_a_socket_takes_nothing_and_the_broker_reads():
    with pytest.raises(BlockingIOError):
        files._send_nothing(1, 2, 0, 10)


@pytest.fixture
def windows_locks(monkeypatch):
    """`locks` with a fake msvcrt, which knows the descriptor that has the lock of each file."""
    held: dict[int, int] = {}

    def locking(fd, mode, count):
        inode = os.fstat(fd).st_ino
        if mode == 0:
            assert held.pop(inode) == fd
        elif held.setdefault(inode, fd) != fd:
            raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(locks, "fcntl", None)
    monkeypatch.setattr(
        locks, "_msvcrt", types.SimpleNamespace(locking=locking, LK_NBLCK=2, LK_UNLCK=0), raising=False
    )


def test_the_locks_of_windows_exclude_another_descriptor(tmp_path, windows_locks):
    first, second = (files.open_file(str(tmp_path / "lock"), 0o600, create=True) for _ in range(2))
    assert not locks.is_locked(second)
    locks.lock(first, against_java=True)
    assert locks.is_locked(second)
    with pytest.raises(BlockingIOError):
        locks.lock(second)
    assert locks.owner(tmp_path / "lock") is None
    os.close(first)
    os.close(second)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_loop_that_takes_no_signal_handlers_hears_of_signals_all_the_same(monkeypatch, number):
    def refuse(self, number, callback, *arguments):
        raise NotImplementedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse)
    before = {each: signal.getsignal(each) for each in signals.STOP_SIGNALS}

    async def wait_for_signal() -> int:
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[int] = loop.create_future()
        signals.handle_stop_signals(loop, heard.set_result)
        signal.raise_signal(number)
        return await asyncio.wait_for(heard, 20)

    try:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            assert runner.run(wait_for_signal()) == number
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="this system has no SIGHUP")
def test_a_loop_that_takes_no_signal_handlers_hears_of_a_reload(monkeypatch):
    def refuse(self, number, callback, *arguments):
        raise NotImplementedError

    monkeypatch.setattr(asyncio.SelectorEventLoop, "add_signal_handler", refuse)
    monkeypatch.setattr(signals.sys, "stdin", None)
    before = signal.getsignal(signal.SIGHUP)

    async def wait_for_reload() -> None:
        loop = asyncio.get_running_loop()
        heard: asyncio.Future[None] = loop.create_future()
        signals.handle_reload_signal(loop, lambda: heard.set_result(None))
        signal.raise_signal(signal.SIGHUP)
        await asyncio.wait_for(heard, 60)

    try:
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(wait_for_reload())
    finally:
        signal.signal(signal.SIGHUP, before)


def test_without_limits_of_a_process_there_is_the_c_runtimes(monkeypatch):
    monkeypatch.setattr(limits, "resource", None)
    assert limits.open_files() == limits.raise_open_files(65_536) == 8192
    assert limits.memory_held() == 0
    limits.limit_memory(1)


def test_busy_polling_is_for_loops_whose_empty_turns_are_cheap():
    plain, broker = asyncio.SelectorEventLoop(), event_loop.new_event_loop()
    try:
        assert not event_loop.turns_are_cheap(plain)
        assert event_loop.turns_are_cheap(broker) == (event_loop.uvloop is not None)
    finally:
        plain.close()
        broker.close()
