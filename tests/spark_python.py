"""Forks Python processes, which others than the tests start, from a process that has imported their modules.

Spark's JVM starts a Python process for each streaming source and for each kind of planner. Nearly all of the
half second of CPU time that such a process takes is for the same imports. Here the JVM starts a small program
in place of Python. The program passes its arguments, environment, folder and streams to the server below. The
server forks, and the new process does what Python would do. The program lives as long as that process. The
commands of the pages' blocks (`tests/docs/commands.py`) are forked in the same way.

The daemon of the workers that run tasks is a process of its own, as for users: tests find and kill its
workers. If no server runs, or the server does not know the module, the program becomes Python.
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import functools
import gc
import importlib
import marshal
import os
import runpy
import selectors
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

_PLANNERS = "pyspark.daemon"
_SOURCES = "pyspark.sql.streaming.python_streaming_source_runner"

#: What Spark's processes import: Spark's modules of data sources, ours, and pandas, which PyArrow imports.
_IMPORTED = (
    _PLANNERS,
    _SOURCES,
    *(
        f"pyspark.sql.worker.{name}"
        for name in (
            "lookup_data_sources",
            "create_data_source",
            "plan_data_source_read",
            "write_into_data_source",
            "commit_data_source_write",
            "python_streaming_sink_runner",
        )
    ),
    "barnabas.spark.stream_reader",
    "barnabas.spark.writer",
    "pandas",
)

#: The program. It must start fast, so it imports only what Python has loaded or built in, and `_socket`.
_CLIENT = """\
import _socket, marshal, os, sys
server, python, *words = sys.argv[1:]
environment = dict(os.environ)
zipped = ("/python/lib/pyspark.zip", "-src.zip", ".jar")
paths = environment.get("PYTHONPATH", "").split(":")
environment["PYTHONPATH"] = ":".join(each for each in paths if each and not each.endswith(zipped))
program, *arguments = words[words[:1] == ["-m"]:] or [""]
known = program in PROGRAMS and arguments != ["pyspark.worker"]
connection = _socket.socket(_socket.AF_UNIX)
try:
    if not known or environment.get("PYTHONHASHSEED", "0") != "0":
        raise OSError
    connection.connect(server)
except OSError:
    os.execve(python, [python, *words], environment)
call = marshal.dumps((program, arguments, environment, os.getcwd()))
streams = b"".join(number.to_bytes(4, sys.byteorder) for number in (0, 1, 2))
connection.sendmsg([len(call).to_bytes(4, "big")], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
while call:
    call = call[connection.send(call):]
code = int.from_bytes(connection.recv(4) or b"\\0\\0\\0\\1", "big", signed=True)
if code < 0:
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Call(NamedTuple):
    """A process to fork: its module or file, arguments, environment, working folder and standard streams."""

    program: str
    arguments: list[str]
    environment: dict[str, str]
    folder: str
    streams: list[int]


@functools.cache
def forking_python(
    programs: Sequence[str] = (_PLANNERS, _SOURCES), imported: Sequence[str] = _IMPORTED
) -> str:
    """Start a server of this process. Return the path of the program to start in place of Python.

    Args:
        programs: the modules after `-m`, and the paths of files, whose processes the server forks.
        imported: the modules that the server imports.
    """
    folder = Path(tempfile.mkdtemp(prefix="barnabas-python-"))
    client, program, server = folder / "client.py", folder / "python", folder / "socket"
    client.write_text(f"PROGRAMS = {set(programs)!r}\n{_CLIENT}")
    words = shlex.join([sys.executable, "-I", "-S", str(client), str(server), sys.executable])
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    room = "." * 200  # for the command line of a forked process
    process = subprocess.Popen(
        [sys.executable, "-I", __file__, str(server), ",".join(imported), room],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        env=os.environ | {"PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"},
    )
    atexit.register(_end, process, folder)
    return str(program)


def _end(process: subprocess.Popen[bytes], folder: Path) -> None:
    process.communicate()  # the server ends when its stdin does
    shutil.rmtree(folder)


def main(path: str, imported: str) -> None:
    for name in imported.split(","):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    gc.freeze()
    call = serve(path)
    if call is not None:
        os._exit(become(call))


def serve(path: str) -> Call | None:
    """Fork for each call until stdin ends. Return the call in the forked process, and None at the end."""
    listener = socket.socket(socket.AF_UNIX)
    beside = f"{path}.new"
    listener.bind(beside)
    listener.listen(64)
    Path(beside).rename(path)
    ready = selectors.DefaultSelector()
    ready.register(0, selectors.EVENT_READ)
    ready.register(listener, selectors.EVENT_READ)
    while True:
        for key, _ in ready.select():
            if key.fileobj == 0:
                return None
            if key.fileobj is listener:
                connection, _ = listener.accept()
                try:
                    call = _receive(connection)
                except (EOFError, OSError, ValueError):  # the program was killed
                    connection.close()
                    continue
                child = os.fork()
                if not child:
                    _close(ready, connection)
                    return call
                for stream in call.streams:
                    os.close(stream)
                ready.register(connection, selectors.EVENT_READ, child)
                ready.register(os.pidfd_open(child), selectors.EVENT_READ, (child, connection))
            elif isinstance(key.data, int):  # Spark has ended the program
                with contextlib.suppress(KeyError, ValueError):  # so has the process, at the same time
                    ready.unregister(key.fileobj)
                    os.kill(key.data, signal.SIGTERM)
            else:
                child, connection = key.data
                code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
                with contextlib.suppress(KeyError):
                    ready.unregister(connection)
                with connection, contextlib.suppress(OSError):
                    connection.sendall(code.to_bytes(4, "big", signed=True))
                ready.unregister(key.fileobj)
                os.close(key.fd)


def _close(ready: selectors.BaseSelector, *more: socket.socket) -> None:
    """Close what is the server's own."""
    open_ones = [key.fileobj for key in ready.get_map().values() if key.fileobj != 0]
    for each in (ready, *more, *open_ones):
        if isinstance(each, int):
            os.close(each)
        else:
            each.close()  # type: ignore[union-attr]


def _receive(connection: socket.socket) -> Call:
    head, streams, *_ = socket.recv_fds(connection, 4, 3)
    with connection.makefile("rb") as stream:
        return Call(*marshal.loads(stream.read(int.from_bytes(head, "big"))), streams)


def become(call: Call) -> int:
    """Do what Python does, and return the exit code."""
    for number, stream in enumerate(call.streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(call.environment)
    os.chdir(call.folder)
    is_file = Path(call.program).is_absolute()
    sys.path[:0] = [
        str(Path(call.program).parent) if is_file else call.folder,
        *filter(None, call.environment.get("PYTHONPATH", "").split(":")),
    ]
    sys.argv = [call.program, *call.arguments]
    show(" ".join(["python", *(() if is_file else ("-m",)), *sys.argv]))
    sys.modules.pop(call.program, None)  # runpy warns about a module that is imported already
    code: Any = 0
    try:
        if is_file:
            runpy.run_path(call.program, run_name="__main__")
        else:
            runpy.run_module(call.program, run_name="__main__", alter_sys=True)
    except SystemExit as ended:
        code = ended.code or 0
    except BaseException:
        traceback.print_exc()
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # what Python does at its end, but for freeing memory
    atexit._run_exitfuncs()
    for output in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            output.flush()
    return code if isinstance(code, int) else 1


def show(words: str, environment: str = "") -> None:
    """Write the command line over the server's, where the kernel shows it and tests look for it.

    Write the environment in the same way, if there is one. Only for a process whose `os.environ` was cleared.
    """
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    for text, field in ((words, 45), (environment, 47)):
        start, end = map(int, fields[field : field + 2])
        if text:
            ctypes.memmove(start, text.encode().ljust(end - start, b"\0")[: end - start], end - start)


if __name__ == "__main__":
    main(*sys.argv[1:3])
