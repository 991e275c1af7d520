"""Runs jobs in worker processes, which parse and compare schemas (`worker.py`).

A worker starts when a job finds none idle. All registries of this process share the workers.
"""

from __future__ import annotations

import atexit
import contextlib
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

import barnabas
from barnabas.base.system.processes import inherits, kill_group, own_group
from barnabas.registry.errors import Code, RegistryError

#: few: answers are cached, and a worker takes some 60 MB
SIZE = 2

#: argv: the folder of the package, the connection's descriptor
_RUN = (
    "import sys; sys.path.insert(0, sys.argv[1]); from barnabas.base.system.processes import inherited; "
    "from barnabas.registry.worker import serve; serve(inherited(int(sys.argv[2])))"
)


class _Worker:
    def __init__(self) -> None:
        self._connection, other = Pipe()
        with other:
            folder = str(Path(barnabas.__file__).parent.parent)
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-c", _RUN, folder, str(other.fileno())],
                stdin=subprocess.DEVNULL,
                **inherits(other),
                **own_group(),  # its own children end with it
            )

    def ask(self, job: tuple[Any, ...], deadline: float) -> Any:
        """Send a job to the worker, and return its reply, a `worker.Reply`.

        `job` has the name of the job, from `worker.JOBS`, and its arguments. `deadline` is a time of
        `time.monotonic`. Raises EOFError or OSError if the worker dies, and TimeoutError at the deadline. An
        error of the job itself is in the reply.
        """
        self._connection.send(job)
        if not self._connection.poll(max(deadline - time.monotonic(), 0)):
            raise TimeoutError
        return self._connection.recv()

    def kill(self) -> None:
        """Kill the worker and its children. The thread that waits for its reply gets an error."""
        kill_group(self._process)

    def end(self) -> int:
        """Kill the worker, and return its exit status."""
        self._connection.close()
        self.kill()
        return self._process.wait()


class Workers:
    """A pool of at most `size` worker processes.

    Any thread can use it. Each worker does one job at a time.
    """

    def __init__(self, size: int = SIZE) -> None:
        self._free = threading.BoundedSemaphore(size)
        self._lock = threading.Lock()
        self._idle: list[_Worker] = []
        self._busy: set[_Worker] = set()
        self._users = 0
        self._closed = False

    @contextlib.contextmanager
    def in_use(self) -> Iterator[None]:
        """Return a context in which a registry uses the workers.

        When the last of these contexts ends, the workers that have a job are killed. Idle workers stay.
        """
        with self._lock:
            self._users += 1
            self._closed = False
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._closed = self._users == 0
                given_up = list(self._busy) if self._closed else []
            for worker in given_up:
                worker.kill()

    def run(self, deadline: float, *job: Any) -> Any:
        """Run a job in a worker, and return its result. This blocks.

        Args:
            job: name of the job, from `worker.JOBS`, and its arguments.
            deadline: time limit on the clock of `time.monotonic`.

        Raises:
            RegistryError: the error of the job; OPERATION_TIMEOUT at the deadline, or if no registry uses the
                workers any more; STORE_ERROR if the worker dies.
        """
        if not self._free.acquire(timeout=max(deadline - time.monotonic(), 0)):
            raise _too_late()
        try:
            reply = self._run(job, deadline)
        finally:
            self._free.release()
        if reply.code:
            raise RegistryError(reply.code, reply.message)
        return reply.value

    def close(self) -> None:
        """Kill the idle workers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for worker in idle:
            worker.end()

    def _run(self, job: tuple[Any, ...], deadline: float) -> Any:
        with self._lock:
            if self._closed:
                raise RegistryError(Code.OPERATION_TIMEOUT, "the registry stops: try again")
            worker = self._idle.pop() if self._idle else None  # the last used one has most schemas cached
            worker = worker or _Worker()
            self._busy.add(worker)
        try:
            reply = worker.ask(job, deadline)
        except TimeoutError:
            worker.end()
            raise _too_late() from None
        except (EOFError, OSError):
            words = f"the process that reads schemas has ended (status {worker.end()}): ask again"
            raise RegistryError(Code.STORE_ERROR, words) from None
        except BaseException:
            worker.end()
            raise
        finally:
            with self._lock:
                self._busy.discard(worker)
        if reply.retires:
            worker.end()
        else:
            with self._lock:
                self._idle.append(worker)
        return reply


def _too_late() -> RegistryError:
    return RegistryError(Code.OPERATION_TIMEOUT, "the schema could not be read in time: try again")


#: of all registries of this process
WORKERS = Workers()
atexit.register(WORKERS.close)
