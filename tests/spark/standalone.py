"""A standalone Spark cluster on this machine, from PySpark's jars: a master, and workers with one core."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pyspark

PATIENCE_S = 300.0

T = TypeVar("T")


class StandaloneCluster:
    """A cluster. Each of its processes leads a process group, with its executors and their Python workers."""

    def __init__(self, folder: Path, workers: int, *, with_our_packages: bool = True) -> None:
        """Start the cluster. `folder` gets its logs and the executors' files.

        With `with_our_packages`, the executors' Python workers can import the packages of this run.
        """
        self._folder = folder
        self._path = os.pathsep.join(sys.path) if with_our_packages else ""
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start("master", "org.apache.spark.deploy.master.Master")
        self.url = wait_for(
            "the address of Spark's master",
            lambda: re.search(r"Starting Spark master at (\S+)", self.log("master")),
            lambda: self.log("master")[-2_000:],
        )[1]
        for number in range(workers):
            name = f"worker-{number}"
            options = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / name), self.url]
            self._start(name, "org.apache.spark.deploy.worker.Worker", *options)
        for number in range(workers):
            name = f"worker-{number}"
            wait_for(
                f"{name} to be registered with Spark's master",
                lambda name=name: "registered with master" in self.log(name),
                lambda name=name: self.log(name)[-2_000:],
            )

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def executors(self, worker: int) -> int:
        """Return the number of executors that this worker has started."""
        return len(list((self._folder / f"worker-{worker}").glob("app-*/*")))

    def kill_worker(self, number: int) -> None:
        """Kill a worker and all its processes, as when its machine fails."""
        self._kill(self._processes[1 + number])

    def stop(self) -> None:
        for process in self._processes:
            self._kill(process)

    def _start(self, name: str, main: str, *options: str) -> None:
        home = Path(pyspark.__file__).parent
        command = [home / "bin" / "spark-class", main, "--host", "127.0.0.1", "--port", "0"]
        environment = {
            **os.environ,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "PYTHONPATH": self._path,
        }
        with (self._folder / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [*command, "--webui-port", "0", *options],
                    stdout=log,
                    stderr=log,
                    env=environment,
                    start_new_session=True,
                )
            )

    def _kill(self, process: subprocess.Popen[bytes]) -> None:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def wait_for(what: str, condition: Callable[[], T], seen: Callable[[], object] = lambda: "nothing") -> T:
    """Wait until `condition` returns a true value, and return it. A failure names `what` and shows `seen`."""
    deadline = time.monotonic() + PATIENCE_S
    while not (found := condition()):
        assert time.monotonic() < deadline, f"waited {PATIENCE_S:g} s for {what}; there is: {seen()}"
        time.sleep(0.05)
    return found
