"""A start that fails at any step prints one line and leaves nothing open, and the next start succeeds."""

from __future__ import annotations

import errno
import logging
import os
import shutil
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from tests.ports import held_port

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.errors import BarnabasError
from barnabas.base.system import event_loop
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.broker import Broker
from barnabas.cli.app import app
from barnabas.testing import BarnabasBroker


class FailingFile:
    """A file of `FailingFileSystem`."""

    def __init__(self, file, step):
        self._file = file
        self._step = step

    def __getattr__(self, name):
        method = getattr(self._file, name)
        if name == "close":
            return method

        def call(*arguments):
            self._step(f"file.{name}")
            return method(*arguments)

        return call


class FailingFileSystem:
    """The system's files. The operation with the number `fails_at` fails; the first one has number 1."""

    def __init__(self, fails_at=0, error=errno.EIO):
        self.steps = []
        self._fails_at = fails_at
        self._error = error
        self._fs = OsFileSystem()

    def __getattr__(self, name):
        method = getattr(self._fs, name)

        def call(*arguments, **options):
            self._step(name)
            result = method(*arguments, **options)
            return FailingFile(result, self._step) if name == "open" else result

        return call

    def _step(self, name):
        self.steps.append(name)
        if len(self.steps) == self._fails_at:
            raise OSError(self._error, os.strerror(self._error), f"step {name}")


@pytest.fixture(scope="module", params=["new", "stopped", "killed"])
def data(request, tmp_path_factory) -> Callable[[], Path]:
    """Return a new copy of data: of a new broker, after a clean stop, or after a kill."""
    folder = tmp_path_factory.mktemp("data")
    before = folder / "before"
    if request.param == "new":
        before.mkdir()
    else:
        with BarnabasBroker(data=before, mode="process") as broker:
            broker.create_topic("kept", 2)
            broker.produce("kept", *range(100))
            broker.consumer("kept", group="g").__enter__().close()
            if request.param == "killed":
                broker.kill()
    copies = iter(range(10_000))

    def copy() -> Path:
        target = folder / f"copy-{next(copies)}"
        shutil.copytree(before, target)
        return target

    return copy


def start(path: Path, fs: FileSystem | None = None) -> None:
    """Start a broker and stop it."""

    async def run() -> None:
        broker = Broker(
            BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0",), log_dirs=(str(path),)),
            replace(Environment.of_system(), filesystem=fs or OsFileSystem()),
        )
        await broker.start()
        await broker.stop()

    event_loop.run(run())


def open_files(folder: Path) -> list[str]:
    """Return the files in a folder that this process has open."""
    found = []
    for entry in Path("/proc/self/fd").iterdir() if Path("/proc/self/fd").exists() else ():
        with suppress(OSError):
            found.append(str(entry.readlink()))
    return [path for path in found if path.startswith(str(folder))]


def test_a_fault_of_any_file_operation_ends_in_an_error_that_names_it(data, caplog, begun):
    whole = FailingFileSystem()
    start(data(), whole)
    assert whole.steps
    for error in (errno.EIO, errno.ENOSPC):
        for number in range(1, len(whole.steps) + 1, 1 if error == errno.EIO else 3):
            path = data()
            caplog.clear()
            try:
                start(path, FailingFileSystem(number, error))
            except (BarnabasError, OSError) as refused:
                assert str(refused).isprintable(), whole.steps[number - 1]
                assert len(str(refused)) < 600
                assert open_files(path) == [], whole.steps[number - 1]
            assert not [record for record in caplog.records if record.exc_info], whole.steps[number - 1]
            begun.assert_ended()
            start(path)
            shutil.rmtree(path)


STEPS = [
    "barnabas.broker.server.broker.check_groups",
    "barnabas.broker.server.stages.binding.bound_endpoints",
    "barnabas.broker.server.stages.binding.advertised_endpoints",
    "barnabas.broker.server.stages.binding.check_folders",
    "barnabas.broker.server.network.listener.Listener.bind",
    "barnabas.broker.server.stages.metadata.open_store",
    "barnabas.broker.metadata.loader.MetadataLoader.start",
    "barnabas.broker.logs.manager.LogManager.open",
    "barnabas.broker.logs.manager.LogManager.load",
    "barnabas.broker.controller.Controller.start",
    "barnabas.broker.replication.manager.ReplicaManager.apply",
    "barnabas.broker.coordinator.GroupCoordinator.start",
    "barnabas.broker.coordinator.TransactionCoordinator.start",
    "barnabas.broker.server.stages.upkeep.upkeep",
    "barnabas.broker.logs.cleaner.LogCleaner.start",
    "barnabas.broker.server.network.listener.Listener.start",
]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize(
    "error", [OSError(errno.EIO, "broken", "some/path"), RuntimeError("a\nbug")], ids=repr
)
def test_the_command_ends_in_one_line_wherever_the_start_fails(tmp_path, monkeypatch, begun, step, error):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.chdir(tmp_path)
    held = held_port()
    port = held.getsockname()[1]
    arguments = ["start", "--listen", f"127.0.0.1:{port}", "--log-level", "error"]
    with monkeypatch.context() as patched:
        patched.setattr(step, fail)
        result = CliRunner().invoke(app, arguments, prog_name="barnabas")
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.count("\n") == 1, result.stderr
    assert result.stderr.startswith("Error: ")
    begun.assert_ended()
    socket.create_server(("127.0.0.1", port)).close()
    held.close()
    if (tmp_path / "barnabas-data").exists():
        start(tmp_path / "barnabas-data")


def test_a_start_that_fails_before_the_logs_are_recovered_does_not_mark_them_as_clean(data, monkeypatch):
    path = data()
    is_clean = (path / ".kafka_cleanshutdown").exists() or not list(path.iterdir())

    async def fail(*_arguments, **_options):
        raise RuntimeError("no further")

    with monkeypatch.context() as patched:
        patched.setattr("barnabas.broker.logs.manager.LogManager.load", fail)
        with pytest.raises(RuntimeError, match="no further"):
            start(path)
    assert (path / ".kafka_cleanshutdown").exists() == is_clean


def test_a_start_and_a_stop_say_what_they_do(data, caplog):
    with caplog.at_level(logging.INFO):
        start(data())
    told = "\n".join(record.getMessage() for record in caplog.records)
    assert "starts as broker 1" in told
    assert "opened all logs in" in told
    assert "listening on PLAINTEXT://127.0.0.1:" in told
    assert "the stop is marked as clean" in told
