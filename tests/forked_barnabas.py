"""Forks the brokers and commands that tests start as processes, from a process that has imported Barnabas.

Nearly all of the half second of CPU time that `python -m barnabas.cli` takes until it serves is for imports.
Here `subprocess.Popen` asks a server for such a process. The server forks, and the new process does what
`python -m` does. Its parent is the process that called Popen, so waiting, signals and exit codes are the
kernel's, as for each other child.

Popen starts Python itself if it gets options that the server does not know, if Python would read another
environment at its start, or on a system where a process cannot have a sibling. The script `barnabas` is
never forked.
"""

from __future__ import annotations

import atexit
import ctypes
import gc
import importlib
import inspect
import marshal
import os
import platform
import runpy
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.spark_python import show

_ROOT = Path(__file__).parents[1]
_MODULES = ("barnabas.cli", "barnabas.testing.process_broker")
#: What the processes import, also when they run.
_IMPORTED = (*_MODULES, "barnabas.cli.start.command")
#: Python or the C library reads variables with these names when it starts.
_READ_AT_START = ("LANG", "LC_", "LD_", "PYTHON", "TZ")
#: the number of the system call clone
_CLONE = {"x86_64": 56, "aarch64": 220}.get(platform.machine()) if sys.platform == "linux" else None
_CLONE_PARENT = 0x8000
#: the signals that a process ignores if its parent does, and that a test can change after the server's start
_INHERITED = (signal.SIGHUP, signal.SIGQUIT)
_PIPES = ("p2cread", "p2cwrite", "c2pread", "c2pwrite", "errread", "errwrite")
#: The options of Popen that the server does not know.
_DEFAULTS: dict[str, Any] = {
    "executable": None,
    "preexec_fn": None,
    "close_fds": True,
    "pass_fds": (),
    "shell": False,
    "restore_signals": True,
    "gid": None,
    "gids": None,
    "uid": None,
    "umask": -1,
    "process_group": -1,
}

#: the environment in which the server starts
_at_start: dict[str, str] = {}
#: the server of the process with this id
_servers: dict[int, Server] = {}
_starting = threading.Lock()


class Call(NamedTuple):
    """A process to fork."""

    module: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    umask: int
    has_own_session: bool
    #: those of `_INHERITED` that the process ignores
    ignored: list[int]


# -- in the process of the tests


def can_fork() -> bool:
    """Return whether a process can have a sibling here."""
    return _CLONE is not None


def fork_from_now_on() -> None:
    """Let `subprocess.Popen` of this process fork what it can fork."""
    if not can_fork():
        return
    execute = subprocess.Popen._execute_child  # type: ignore[attr-defined]
    names = list(inspect.signature(execute).parameters)
    _at_start.update(os.environ)

    def fork_or_execute(popen: Any, *arguments: Any) -> None:
        given = dict(zip(names[1:], arguments, strict=True))
        call = _call(**given)
        streams = [given[name] for name in ("p2cread", "c2pwrite", "errwrite")]
        pid = call and server().fork(call, streams)
        if pid:
            popen.pid = pid
            popen._child_created = True
            popen._close_pipe_fds(*(given[name] for name in _PIPES))
        else:
            execute(popen, *arguments)

    subprocess.Popen._execute_child = fork_or_execute  # type: ignore[attr-defined]


def _call(args: Any, cwd: Any, env: Any, start_new_session: bool, **options: Any) -> Call | None:
    """Return the call for the arguments of Popen, or None if their process is not to be forked."""
    if isinstance(args, (str, bytes, os.PathLike)):
        return None
    if any(options[name] != value for name, value in _DEFAULTS.items()):
        return None
    python, minus_m, module, *more = [*map(os.fspath, args), "", "", ""][: max(3, len(args))]
    environment = dict(os.environ if env is None else env)
    if (python, minus_m) != (sys.executable, "-m") or module not in _MODULES:
        return None
    if _read_at_start(environment) != _read_at_start(_at_start):
        return None
    folder = os.fspath(cwd or Path.cwd())
    ignored = [int(number) for number in _INHERITED if signal.getsignal(number) is signal.SIG_IGN]
    return Call(module, more, environment, folder, _umask(), start_new_session, ignored)


def _umask() -> int:
    """Return this process's umask. `os.umask` would change it, for other threads, too."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("Umask:")[2].split()[0], 8)


def _read_at_start(environment: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name.startswith(_READ_AT_START)}


def server() -> Server:
    """Return the server of this process, and start it at the first call. A forked process gets its own."""
    with _starting:
        if os.getpid() not in _servers:
            _servers[os.getpid()] = Server(*_start_server())
            atexit.register(_servers[os.getpid()].end)
    return _servers[os.getpid()]


def _start_server() -> tuple[int, socket.socket]:
    """Start a server. Return its process id, and the connection to it."""
    connection, its_end = _connected()
    room = "." * 8000  # for the command line of a forked process, and for its environment
    program = f"from {__name__} import main; main()"
    with its_end:
        process = subprocess.Popen(
            [sys.executable, "-c", program, str(its_end.fileno()), room],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            cwd=_ROOT,
            env=_at_start | {"ROOM": room},
            pass_fds=[its_end.fileno()],
        )
    process.returncode = 0  # `Server.end` waits for it
    return process.pid, connection


def _connected() -> tuple[socket.socket, socket.socket]:
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


class Server:
    """The process that forks. It ends with this process."""

    def __init__(self, pid: int, connection: socket.socket) -> None:
        self.pid = pid
        self._connection = connection
        self._turn = threading.Lock()

    def end(self) -> None:
        self._connection.close()
        os.waitpid(self.pid, 0)

    def fork(self, call: Call, streams: list[int]) -> int | None:
        """Return the id of the forked process, or None if there is none.

        Args:
            streams: stdin, stdout and stderr of the process. -1 stands for this process's own.
        """
        given = [number if own == -1 else own for number, own in enumerate(streams)]
        read, write = os.pipe()
        with os.fdopen(read) as answer:
            try:
                with self._turn:
                    socket.send_fds(self._connection, [marshal.dumps(tuple(call))], [*given, write])
            except OSError:
                return None
            finally:
                os.close(write)
            return int(answer.read() or 0) or None


# -- in the server


def main() -> None:
    """Import, then fork for each call, until the process of the tests has ended."""
    gc.disable()
    for name in _IMPORTED:
        importlib.import_module(name)
    gc.freeze()
    become(*_next_call(socket.socket(fileno=int(sys.argv[1]))))


def _next_call(connection: socket.socket) -> tuple[Call, int]:
    """Fork for each call. In the forked process, return the call, and where to answer it."""
    while True:
        message, streams, *_ = socket.recv_fds(connection, 1 << 20, 4)
        if not message:
            os._exit(0)
        if not fork_sibling():
            connection.close()
            *standard, answer = streams
            for number, stream in enumerate(standard):
                os.dup2(stream, number)
                os.close(stream)
            return Call(*marshal.loads(message)), answer
        for stream in streams:
            os.close(stream)


def fork_sibling() -> int:
    """Do what `os.fork` does, but for a process whose parent is the parent of this one."""
    python = ctypes.pythonapi  # its calls keep the interpreter's lock
    system_call = ctypes.PyDLL(None).syscall
    system_call.restype = ctypes.c_long
    python.PyOS_BeforeFork()
    pid: int = system_call(*map(ctypes.c_long, [_CLONE or 0, _CLONE_PARENT | signal.SIGCHLD, 0, 0, 0, 0]))
    if pid == 0:
        python.PyOS_AfterFork_Child()
    else:
        python.PyOS_AfterFork_Parent()
    return pid


def become(call: Call, answer: int) -> None:
    """Do what ``python -m`` does."""
    if call.has_own_session:
        os.setsid()
    os.umask(call.umask)
    for number in _INHERITED:
        signal.signal(number, signal.SIG_IGN if number in call.ignored else signal.SIG_DFL)
    os.chdir(call.folder)
    os.environ.clear()
    os.environ.update(call.environment)
    if call.arguments[:1] == ["cluster"] or "--brokers" in call.arguments:
        _fork_server(answer)
    sys.path[0] = call.folder
    sys.argv = [call.module, *call.arguments]
    words = [sys.executable, "-m", *sys.argv]
    sys.orig_argv = words
    show("\0".join(words), "\0".join(map("=".join, call.environment.items())))
    os.write(answer, str(os.getpid()).encode())
    os.close(answer)
    gc.enable()
    sys.stdout.reconfigure(line_buffering=sys.stdout.isatty())  # type: ignore[union-attr]
    sys.modules.pop(call.module)  # runpy warns about a module that is imported already
    runpy.run_module(call.module, run_name="__main__", alter_sys=True)


def _fork_server(answer: int) -> None:
    """Fork a server for the brokers that this process will start."""
    connection, its_end = _connected()
    pid = os.fork()
    if pid:
        its_end.close()
        _servers[os.getpid()] = Server(pid, connection)
        fork_from_now_on()
        return
    connection.close()
    os.close(answer)
    with Path(os.devnull).open("r+b") as nothing:
        for number in range(3):
            os.dup2(nothing.fileno(), number)
    become(*_next_call(its_end))
    sys.exit()
