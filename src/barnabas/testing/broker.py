"""A broker for tests. It starts fast on a free port, and is removed with its data at the end of the block."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from barnabas.base.settings_file import as_texts
from barnabas.testing.cluster import TemporaryCluster
from barnabas.testing.runners import RUNNERS, BrokerDied, ProcessRunner, Runner

__all__ = ["BarnabasBroker", "BrokerDied"]

#: Defaults that suit a test rather than a server: small internal topics, which are created quickly.
TEST_SETTINGS = {
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.num.partitions": "4",
    "log.index.size.max.bytes": "65536",
    # A test's records may have any timestamp: nothing is deleted for its age.
    "log.retention.check.interval.ms": "86400000",
    "producer.id.expiration.check.interval.ms": "86400000",
}


class BarnabasBroker(TemporaryCluster):
    """A Barnabas broker that runs while the `with` block runs.

    Args:
        settings: broker settings by Kafka's names, e.g. {"num.partitions": 3}.
        data: folder for the data, which is kept. By default a temporary folder, removed at the end.
        mode: "thread" runs the broker in this process (fastest, and a debugger reaches it). "process" runs
            `barnabas start` in a process of its own, which a test can also kill.
        port: 0 chooses a free port, which stays the same after `restart`.

    Raises:
        ValueError: `mode` is not known.
        ConfigError: a value is not text, a number, a bool or a list of texts.

    `bootstrap_servers` is ``host:port``, for any client.
    """

    def __init__(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        data: str | Path | None = None,
        mode: str = "thread",
        port: int = 0,
    ) -> None:
        if mode not in RUNNERS:
            raise ValueError(f"mode={mode!r} is not known: choose from {', '.join(RUNNERS)}")
        super().__init__()
        self._settings = {**TEST_SETTINGS, **as_texts(settings or {})}
        self._mode = mode
        self._port = port
        self._data = Path(data) if data is not None else None
        self._temporary: str | None = None
        self._runner: Runner | None = None

    # -- its life

    @property
    def bootstrap_servers(self) -> str:
        """Return ``host:port``, which any Kafka client accepts. Raises RuntimeError before `start`."""
        if not self._bootstrap_servers:
            raise RuntimeError("the broker has not been started: use it in a with block, or call start()")
        return self._bootstrap_servers

    @property
    def data(self) -> Path:
        """Return the folder of the broker's data. A temporary folder is created at the first call."""
        if self._data is None:
            self._temporary = tempfile.mkdtemp(prefix="barnabas-test-")
            self._data = Path(self._temporary)
        return self._data

    def start(self) -> Self:
        """Start the broker and wait until it serves. Do nothing if it runs."""
        if self._runner is None:
            settings = {
                **self._settings,
                "listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
                "log.dirs": str(self.data),
            }
            self._runner = RUNNERS[self._mode]()
            try:
                self._bootstrap_servers = self._runner.start(settings)
            except BaseException:
                self._runner = None
                raise
            self._port = int(self._bootstrap_servers.rpartition(":")[2])
        return self

    def stop(self) -> None:
        """Stop the broker cleanly. Its data stays until `close`."""
        runner, self._runner = self._runner, None
        if runner is not None:
            runner.stop()

    def kill(self) -> None:
        """Kill the broker, as a crash would (SIGKILL).

        Raises:
            RuntimeError: the mode is not "process", or the broker does not run.
        """
        if not isinstance(self._runner, ProcessRunner):
            raise RuntimeError('only a broker of mode="process" can be killed')
        runner, self._runner = self._runner, None
        runner.kill()

    def restart(self) -> None:
        """Stop the broker cleanly if it runs. Start it with its data and port, and wait until it serves."""
        self.stop()
        self.start()

    def close(self) -> None:
        """Stop the broker, and remove its temporary data."""
        self.stop()
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)
            self._data = self._temporary = None
