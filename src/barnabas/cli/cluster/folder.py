"""The folder of a cluster that one process runs: where its parts are, and how to reach it.

`barnabas cluster start` and `barnabas start --brokers` run such a cluster.

cluster.json     the layout, kept between starts: addresses, racks, the ZooKeeper
control.json     port and secret of the control connection while the cluster runs; only the user can read it
.lock            locked by the process that runs the cluster, also while it starts, stops or is paused
broker-1/        data of broker 1;  broker-1.log   its log output
broker-1.toml    its settings at its last start, with secrets; only the user can read it
secure/          certificates and passwords that --secure made
zookeeper/       data and log of the cluster's own ZooKeeper, if it runs one
metadata-1.journal, metadata-2.journal, metadata.lock
                 the metadata of `barnabas start --brokers`, as that of a lone broker

`start --brokers` may have several log directories. Each log directory has a folder `broker-N` for each
broker. The first log directory is the folder of the cluster.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from itertools import count as numbers_from
from pathlib import Path
from typing import IO, Any

from barnabas.base.environment.filesystem import Lock
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.settings_file import dump_toml, read_unchecked
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.harm import hint_of
from barnabas.client.certificate_folder import write_private


class ClusterFolderError(BarnabasError):
    """The command cannot use the folder; the message names a hint."""


@dataclass(slots=True)
class Layout:
    """The state of a cluster that is kept between its starts.

    Attributes:
        addresses: ``host:port`` of each broker, by its id; port 0 before its first start.
        racks: ``broker.rack`` by broker id; a broker without a rack has no entry.
        zookeeper: ``host:port,.../chroot``; None before the cluster's own ZooKeeper has a port, and if
            `is_embedded` is true.
        is_own_zookeeper: whether the cluster runs its own ZooKeeper.
        is_embedded: whether the metadata is in the folder's embedded store, and in no ZooKeeper.
        more_log_dirs: absolute paths of the log directories after the first one, which is the folder itself.
    """

    addresses: dict[int, str] = field(default_factory=dict)
    racks: dict[int, str] = field(default_factory=dict)
    zookeeper: str | None = None
    is_own_zookeeper: bool = True
    is_embedded: bool = False
    more_log_dirs: list[str] = field(default_factory=list)


def ids_of(existing: Collection[int], count: int) -> list[int]:
    """Return the ids of the `count` brokers to run, in ascending order.

    These are the lowest `count` ids of `existing`. If there are fewer, new brokers get the lowest free ids
    from 1 on.
    """
    free = (number for number in numbers_from(1) if number not in existing)
    kept = sorted(existing)[:count]
    return sorted([*kept, *(next(free) for _ in range(count - len(kept)))])


@dataclass(frozen=True, slots=True)
class Control:
    """The address and the secret of the process that runs the cluster."""

    port: int
    secret: str
    pid: int


class ClusterFolder:
    """Reads and writes the files in the folder of a cluster on this machine.

    Args:
        path: the folder, which is also the first log directory.
        more: the other log directories.
    """

    def __init__(self, path: Path, *more: Path) -> None:
        self.path = path
        self.log_dirs = (path, *more)

    def data_of(self, broker: int) -> Path:
        return self.log_dir_of(self.path, broker)

    def log_dirs_of(self, broker: int) -> list[Path]:
        """Return the ``log.dirs`` of a broker."""
        return [self.log_dir_of(directory, broker) for directory in self.log_dirs]

    @staticmethod
    def log_dir_of(directory: Path, broker: int) -> Path:
        return directory / f"broker-{broker}"

    def log_of(self, broker: int) -> Path:
        return self.path / f"broker-{broker}.log"

    def open_log_of(self, broker: int) -> IO[bytes]:
        """Open the file of a broker's log output, to append to it.

        Only the user can read the file, since it names clients and topics.
        """
        return os.fdopen(os.open(self.log_of(broker), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "ab")

    def store_settings_of(self, broker: int, settings: Mapping[str, str]) -> Path:
        """Write a broker's settings to a file that only the user can read. Return its path.

        On the command line of the broker's process, other users could read the secrets.

        Raises:
            ClusterFolderError: the file cannot be written.
        """
        path = self.path / f"broker-{broker}.toml"
        self._write_bytes(path, dump_toml(settings).encode())
        return path

    def stores(self) -> set[str]:
        """Return the ``zookeeper.connect`` of the brokers at their last start."""
        found = set()
        for path in self.path.glob("broker-*.toml"):
            with suppress(ConfigError):
                found.add(read_unchecked(path).get("zookeeper.connect", ""))
        return found

    @property
    def secure(self) -> Path:
        """The folder of the files that --secure has made."""
        return self.path / "secure"

    @property
    def zookeeper(self) -> Path:
        return self.path / "zookeeper"

    def require_free(self) -> None:
        """Raise ClusterFolderError if a process runs a cluster in this folder."""
        if self._lock_path.exists():
            self._lock().release()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder, and lock it until the context ends.

        Meanwhile no other process can run a cluster in the folder. When the context ends, remove the folder
        if it is empty.

        Raises:
            ClusterFolderError: a process already runs a cluster in the folder.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        lock = self._lock()
        try:
            self.remove_control()  # of a process that was killed
            yield
        finally:
            lock.release()
            if [each.name for each in self.path.iterdir()] == [self._lock_path.name]:
                with suppress(OSError):  # another start is quicker
                    self._lock_path.unlink()
                    self.path.rmdir()

    def await_free(self, timeout: float) -> None:
        """Wait until no broker uses its folder. Brokers run on for a moment after their supervisor's end.

        Raises:
            ClusterFolderError: a broker still uses its folder after `timeout` seconds.
        """
        deadline = time.monotonic() + timeout
        for lock in (lock for each in self.log_dirs for lock in each.glob("broker-*/.lock")):
            while True:
                try:
                    OsFileSystem().lock(str(lock)).release()
                    break
                except BlockingIOError:
                    if time.monotonic() > deadline:
                        raise ClusterFolderError(f"a broker runs in {lock.parent}: stop it first") from None
                    time.sleep(0.05)

    @property
    def _lock_path(self) -> Path:
        return self.path / ".lock"

    def _lock(self) -> Lock:
        try:
            return OsFileSystem().lock(str(self._lock_path))
        except BlockingIOError:
            if self.layout() is None and (self.path / checkpoints.META_PROPERTIES).exists():
                raise ClusterFolderError(
                    f"a broker runs in {self.path}: stop it first, or choose another folder by --data"
                ) from None
            control = self.control()
            process = "" if control is None else f" (process {control.pid})"
            raise ClusterFolderError(
                f"a cluster runs in {self.path}{process}: stop it with `barnabas cluster stop --data "
                f"{self.path}`, or choose another folder by --data"
            ) from None

    def layout(self) -> Layout | None:
        """Return the layout that the last start wrote; None before the first start.

        Raises:
            ClusterFolderError: ``cluster.json`` is not a cluster's layout.
        """
        found = self._read("cluster.json")
        if found is None:
            return None
        try:
            return Layout(
                {int(broker): str(address) for broker, address in found["addresses"].items()},
                {int(broker): str(rack) for broker, rack in found["racks"].items()},
                found["zookeeper"],
                bool(found["is_own_zookeeper"]),
                bool(found.get("is_embedded", False)),
                [str(path) for path in found.get("more_log_dirs", ())],
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ClusterFolderError(
                f"{self.path / 'cluster.json'} is not of `barnabas cluster start`: choose another folder by "
                "--data"
            ) from None

    def store_layout(self, layout: Layout) -> None:
        self._write("cluster.json", asdict(layout))

    def remove_layout(self) -> None:
        (self.path / "cluster.json").unlink(missing_ok=True)

    def control(self) -> Control | None:
        """Return the address and secret of the process that runs the cluster; None if the folder has none.

        A process that stops removes them. If the process was killed, its address and secret stay in the
        folder until the next start.

        Raises:
            ClusterFolderError: ``control.json`` is damaged.
        """
        found = self._read("control.json")
        if found is None:
            return None
        try:  # a later version may have written more
            return Control(int(found["port"]), str(found["secret"]), int(found["pid"]))
        except (KeyError, TypeError, ValueError):
            raise ClusterFolderError(f"{self.path / 'control.json'} is damaged: remove it") from None

    def store_control(self, control: Control) -> None:
        self._write("control.json", asdict(control))

    def remove_control(self) -> None:
        (self.path / "control.json").unlink(missing_ok=True)

    def last_words_of(self, broker: int) -> str:
        """Return the last line of a broker's log output, and the path of its file, as text for a message."""
        path = self.log_of(broker)
        lines = path.read_text(errors="replace").split("\n") if path.exists() else []
        said = [line.strip() for line in lines if line.strip()]
        if not said:
            return f"its log {path} is empty"
        return f"{said[-1].removeprefix('Error: ')[:500]} (its log is {path})"

    def _read(self, name: str) -> dict[str, Any] | None:
        try:
            text = (self.path / name).read_text()
        except (FileNotFoundError, NotADirectoryError):
            return None
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise ClusterFolderError(f"{self.path / name} is damaged: remove it, or choose another folder")
        return found

    def _write(self, name: str, value: object) -> None:
        self._write_bytes(self.path / name, f"{json.dumps(value, indent=2)}\n".encode())

    def _write_bytes(self, path: Path, content: bytes) -> None:
        """Write a file atomically; only the user can read it. Do nothing if it already has this content.

        So a broker whose settings are the same starts again although the disk is full.

        Raises:
            ClusterFolderError: the file cannot be written.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            if path.read_bytes() == content:
                return
        try:
            write_private(path, content)
        except OSError as error:
            raise ClusterFolderError(f"{path} cannot be written: {error.strerror}{hint_of(error)}") from error
