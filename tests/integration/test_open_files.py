"""A broker's operations on open files, on a system that forbids most of them, such as Windows."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.os_filesystem import OsFile, OsFileSystem
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.client import Admin, Producer


class TrackedFile(OsFile):
    __slots__ = ("_tracker", "path")

    def __init__(self, fd: int, path: str, tracker: StrictFileSystem) -> None:
        super().__init__(fd)
        self.path = path
        self._tracker = tracker
        tracker.opened.add(self)

    def close(self) -> None:
        self._tracker.opened.discard(self)
        super().close()


class StrictFileSystem(OsFileSystem):
    """A file system that rejects renames of folders with open files and replacements of open files, and notes
    them.
    """

    def __init__(self) -> None:
        self.opened: set[TrackedFile] = set()
        self.refused: list[str] = []

    def open(self, path: str, *, create: bool = False) -> TrackedFile:
        file = super().open(path, create=create)
        file_descriptor, file._fd = file._fd, -1
        return TrackedFile(file_descriptor, path, self)

    def rename(self, source: str, target: str) -> None:
        opened = list(self.opened)  # other threads open files, too
        for file in opened:
            if file.path == target or file.path.startswith(source + "/"):
                self.refused.append(f"{source} -> {target}, while {file.path} is open")
                raise PermissionError(13, "in use", source)
        super().rename(source, target)
        for file in opened:
            if file.path == source:
                file.path = target


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def checkpoint(data: Path) -> str:
    path = data / "cleaner-offset-checkpoint"
    return path.read_text() if path.exists() else ""


def test_a_broker_renames_no_folder_over_open_files_and_replaces_none(tmp_path):
    fs, data = StrictFileSystem(), tmp_path / "data"
    settings = {
        "log.dirs": str(data),
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "log.segment.bytes": "2000",
        "log.cleaner.backoff.ms": "50",
        "log.retention.check.interval.ms": "50",
    }
    topics = {
        "plain": {},
        "compacted": {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
        "short": {"retention.bytes": "1000"},
    }

    def segments(topic: str) -> list[str]:
        return sorted(path.name for path in data.glob(f"{topic}-0/*.log"))

    for start in range(2):
        with BrokerServer(
            BrokerConfig.from_text(settings), replace(Environment.of_system(), filesystem=fs)
        ) as server:
            admin = Admin(server.bootstrap_servers)
            for topic, configs in topics.items():
                admin.create_topic(f"{topic}{start}", configs=configs)
            with Producer(server.bootstrap_servers) as producer:
                for number in range(200):
                    for topic in topics:
                        producer.send(f"{topic}{start}", b"v" * 50, key=b"%d" % (number % 7))
                    if number % 20 == 0:
                        producer.flush()
            wait_until(lambda: segments(f"short{start}")[0] != segments(f"plain{start}")[0])  # noqa: B023
            wait_until(lambda: f"compacted{start} 0" in checkpoint(data))  # noqa: B023
            admin.delete_topic(f"plain{start}")
            wait_until(lambda: not (data / f"plain{start}-0").exists())  # noqa: B023
    assert not fs.refused


def test_the_strict_file_system_refuses_what_windows_refuses(tmp_path):
    fs = StrictFileSystem()
    fs.make_directory(f"{tmp_path}/folder")
    file = fs.open(f"{tmp_path}/folder/a", create=True)
    for source, target in (("folder", "other"), ("b", "folder/a")):
        with pytest.raises(PermissionError):
            fs.rename(f"{tmp_path}/{source}", f"{tmp_path}/{target}")
    fs.rename(f"{tmp_path}/folder/a", f"{tmp_path}/folder/b")
    file.close()
    fs.rename(f"{tmp_path}/folder", f"{tmp_path}/other")
    assert len(fs.refused) == 2
