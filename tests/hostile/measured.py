"""A broker that measures the CPU time of its event loop's turns, and the memory that requests use."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import socket
import struct
import threading
import time
from asyncio import events
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.base.environment.environment import Environment
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.broker import Broker
from barnabas.broker.server.garbage import short_collections
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest

PASSWORD = "secret"


class Turn(NamedTuple):
    """One turn of the event loop: one callback."""

    seconds: float
    what: str
    #: of these, how many the garbage collector took
    collecting: float = 0.0


class MeasuredBroker:
    """A broker on asyncio's loop in a thread. Its callbacks are measured in the thread's CPU time.

    Args:
        settings: settings of the broker, by their attributes' names.
    """

    def __init__(self, directory: Path, **settings: Any) -> None:
        self._config = BrokerConfig(
            **{
                "log_dirs": (str(directory),),
                "listeners": ("PLAINTEXT://127.0.0.1:0",),
                "group_initial_rebalance_delay_ms": 0,
                **settings,
            },
        )
        #: as whom requests come whose cost is measured, by a second listener; None without a login
        self.user: str | None = None
        self._thread = threading.Thread(target=self._run, name="measured broker", daemon=True)
        self._started = threading.Event()
        self.longest = Turn(0, "nothing")
        self.worked = 0.0
        self._collecting = 0.0

    def __enter__(self) -> MeasuredBroker:
        self._thread.start()
        assert self._started.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(60)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = self.broker.address.rpartition(":")
        return host, int(port)

    def connect(self) -> socket.socket:
        """Return a connection for a measured request, logged in as `user`."""
        if self.user is None:
            return socket.create_connection(self.address)
        client = socket.create_connection(("127.0.0.1", self.broker.bound[1].port), timeout=60)
        for request in (
            SaslHandshakeRequest(mechanism="PLAIN"),
            SaslAuthenticateRequest(auth_bytes=f"\0{self.user}\0{PASSWORD}".encode()),
        ):
            header = RequestHeader(request.api_key, request.versions[1], 1, "hostile")
            client.sendall(b"".join(map(bytes, encode_request(header, request))))
            size = int.from_bytes(_exactly(client, 4), "big")
            answer: Any = parse_response(header, _exactly(client, size))
            assert answer.error_code == 0
        return client

    def _run(self) -> None:
        self._ident = threading.get_ident()
        with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        self.loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        self.broker = Broker(self._config, Environment.of_system())
        original = events.Handle._run
        try:
            await self.broker.start()
            events.Handle._run = self._timed(original)  # type: ignore[method-assign]
            with short_collections() as collections:
                collections.begin()
                gc.callbacks.append(self._time_collection)
                self._started.set()
                await self._stopping.wait()
        finally:
            if self._time_collection in gc.callbacks:
                gc.callbacks.remove(self._time_collection)
            events.Handle._run = original  # type: ignore[method-assign]
            await self.broker.stop()

    def _timed(self, original: Any) -> Any:
        def run(handle: Any) -> None:
            if threading.get_ident() != self._ident:
                return original(handle)
            collecting = self._collecting
            start = time.thread_time()
            original(handle)
            seconds = time.thread_time() - start
            self.worked += seconds
            if seconds > self.longest.seconds:
                self.longest = Turn(seconds, repr(handle)[:300], self._collecting - collecting)
            return None

        return run

    def _time_collection(self, phase: str, _: dict[str, int]) -> None:
        if threading.get_ident() == self._ident:
            self._collecting += time.thread_time() * (1 if phase == "stop" else -1)

    def reset(self) -> None:
        self.longest = Turn(0, "nothing")


class Cost(NamedTuple):
    """The effect of one request on the broker."""

    turn: Turn
    peak_mb: float
    held_mb: float
    answered: int  # bytes; -1 when the connection was closed


_libc = ctypes.CDLL(None)


def _trim() -> None:
    # The broker's collections look at nothing that has survived this one: not at the test's own objects.
    gc.collect()
    if hasattr(_libc, "malloc_trim"):
        _libc.malloc_trim(0)


def _status(name: str) -> float:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) / 1024
    raise KeyError(name)


def cost(broker: MeasuredBroker, frame: bytes, patience: float = 60.0) -> Cost:
    """Send one request on a new connection, wait for the answer, and measure."""
    _trim()
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    with broker.connect() as client:
        broker.reset()
        answered = exchange(broker, client, frame, patience)
        peak = _status("VmHWM") - before
    _settle(broker)
    _trim()
    return Cost(broker.longest, peak, _status("VmRSS") - before, answered)


def exchange(broker: MeasuredBroker, client: socket.socket, frame: bytes, patience: float = 60.0) -> int:
    """Send a request and read its answer.

    Returns:
        The answer's number of bytes; 0 if there is none, -1 if the broker closed the connection.
    """
    room = bytearray(1 << 16)
    client.settimeout(1.0)
    try:
        client.sendall(frame)
    except TimeoutError:
        pass  # it reads no more before it has answered
    except OSError:
        return -1
    left, size, head = None, 0, b""
    end = time.monotonic() + patience
    worked = -1.0
    while left is None or left > 0:
        try:
            got = client.recv_into(room)
        except TimeoutError:
            if broker.worked - worked < 0.05 or time.monotonic() > end:
                return 0  # it is parked, or has no answer
            worked = broker.worked
            continue
        except OSError:
            return -1
        if not got:
            return -1
        size += got
        if left is None:
            head += bytes(room[:got])
            if len(head) >= 4:
                left = struct.unpack(">i", head[:4])[0] + 4 - len(head)
        else:
            left -= got
    return size


def _exactly(client: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        part = client.recv(size - len(data))
        assert part, "the broker has closed the connection"
        data += part
    return bytes(data)


def _settle(broker: MeasuredBroker) -> None:
    """Wait until the loop has no more work for the request."""
    done = threading.Event()
    for _ in range(3):
        done.clear()
        broker.loop.call_soon_threadsafe(done.set)
        done.wait(60)
