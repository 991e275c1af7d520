"""The control connection of a running cluster: one line of JSON each way, over the loopback interface.

A command must have the secret in the cluster's folder.
"""

from __future__ import annotations

import hmac
import json
import os
import queue
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.cli.cluster.folder import ClusterFolder, Control

_MAX_LINE = 65_536
#: seconds that a client has to send its command
_PATIENCE = 5.0


class ClusterControlError(BarnabasError):
    """The cluster does not run, or refuses the command; the message says why."""


@dataclass(slots=True)
class Command:
    """A command to the running cluster, which gets one answer.

    `word` is the name of the command. `broker` is the broker that it is about; None for the whole cluster.
    """

    word: str
    broker: int | None
    answers: queue.SimpleQueue[dict[str, Any]] = field(default_factory=queue.SimpleQueue)

    def answer(self, **values: Any) -> None:
        self.answers.put(values)

    def answer_error(self, reason: str) -> None:
        self.answers.put({"error": reason})


class ControlServer:
    """Receives commands in its own threads, and calls `take` in these threads.

    Args:
        folder: folder in which clients find the port and the secret.
        take: called with each command. Some thread must then call the command's `answer`.
    """

    def __init__(self, folder: ClusterFolder, take: Callable[[Command], object]) -> None:
        self._folder = folder
        self._take = take
        self._secret = secrets.token_hex(16)
        self._socket = socket.create_server(("127.0.0.1", 0))

    def start(self) -> None:
        port = self._socket.getsockname()[1]
        self._folder.store_control(Control(port, self._secret, os.getpid()))
        threading.Thread(target=self._accept, name="cluster-control", daemon=True).start()

    def stop(self) -> None:
        self._folder.remove_control()
        self._socket.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return  # stopped
            threading.Thread(target=self._serve, args=[connection], daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection:
            connection.settimeout(_PATIENCE)
            try:
                asked = json.loads(_line(connection))
                is_ours = hmac.compare_digest(str(asked["secret"]), self._secret)
                command = Command(str(asked["word"]), asked["broker"])
            except (OSError, ValueError, KeyError, TypeError):
                return
            if is_ours:
                self._take(command)
                answer = command.answers.get()
                connection.settimeout(None)
                with suppress(OSError):  # the client has not waited for the answer
                    connection.sendall(json.dumps(answer).encode() + b"\n")


def ask(folder: ClusterFolder, word: str, broker: int | None = None, *, timeout: float) -> dict[str, Any]:
    """Send a command to the cluster that runs in `folder`, wait for the answer, and return it.

    The answer to "status" is the cluster's status. The answer to "restart" has the `address` of the broker,
    which is ready then. The answers to all other commands are empty.

    Args:
        folder: folder of the cluster.
        word: the command: "status", "stop", "kill", "pause", "resume" or "restart".
        broker: the broker that the command is about; None for the whole cluster.
        timeout: time limit in seconds.

    Raises:
        ClusterControlError: no cluster runs in the folder, the cluster refuses the command, or the cluster
            does not answer in time.
    """
    control, layout = folder.control(), folder.layout()
    start = "start" if layout is not None and layout.is_embedded else "cluster start"
    missing = ClusterControlError(
        f"no cluster runs in {folder.path}: name its folder by --data, or start it with "
        f"`barnabas {start} --data {folder.path}`"
    )
    if control is None:
        raise missing
    line = json.dumps({"secret": control.secret, "word": word, "broker": broker})
    try:
        with socket.create_connection(("127.0.0.1", control.port), timeout) as connection:
            connection.sendall(line.encode() + b"\n")
            answer = json.loads(_line(connection))
    except TimeoutError:
        raise ClusterControlError(f"the cluster did not answer within {timeout:g} s") from None
    except (OSError, ValueError):
        raise missing from None
    if "error" in answer:
        raise ClusterControlError(answer["error"])
    return dict(answer)


def _line(connection: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\n") and len(line) < _MAX_LINE:
        part = connection.recv(_MAX_LINE)
        if not part:
            break
        line += part
    return bytes(line)
