"""TCP relays on the loopback interface between brokers, which a test can cut and heal.

There is one relay for each ordered pair of brokers. A cut holds data back. As in a real network, TCP
delivers the data after the healing, if neither end has closed the connection. So a test can separate two
brokers without root permissions.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from contextlib import suppress
from typing import Any, TypeVar

from barnabas.base.system import event_loop

T = TypeVar("T")

#: a broker that connects, and the one it connects to
Pair = tuple[int, int]


class Relays:
    """TCP proxies (relays) between the brokers of a cluster, one for each ordered pair of brokers.

    The first broker of a pair connects to the second one through the pair's relay. All relays run in one
    thread. Any other thread can call the methods.
    """

    def __init__(self) -> None:
        self._loop = event_loop.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="barnabas-relays", daemon=True)
        self._relays: dict[Pair, _Relay] = {}

    def start(self, ports: dict[int, int]) -> dict[Pair, int]:
        """Start relays between all brokers. Return the port at which each pair's relay listens.

        Args:
            ports: port of each broker on 127.0.0.1.
        """
        self._thread.start()
        pairs = [(a, b) for a in ports for b in ports if a != b]
        return self._call(self._start, pairs, ports)

    def cut(self, ways: Iterable[Pair]) -> None:
        """Hold back all data from the first to the second broker of each pair."""
        self._call(self._set, list(ways), True)

    def heal(self, ways: Iterable[Pair] | None = None) -> None:
        """Let data pass again from the first to the second broker of each pair; None means all pairs."""
        self._call(self._set, None if ways is None else list(ways), False)

    def stop(self) -> None:
        """Close all connections, and stop listening."""
        if self._thread.is_alive():
            self._call(self._stop)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._loop.close()

    def _call(self, function: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        return asyncio.run_coroutine_threadsafe(function(*args), self._loop).result()

    async def _start(self, pairs: list[Pair], ports: dict[int, int]) -> dict[Pair, int]:
        for pair in pairs:
            self._relays[pair] = _Relay(ports[pair[1]])
            await self._relays[pair].start()
        return {pair: relay.port for pair, relay in self._relays.items()}

    async def _set(self, ways: list[Pair] | None, is_cut: bool) -> None:
        for a, b in self._relays if ways is None else ways:
            self._relays[a, b].hold(requests=is_cut)
            self._relays[b, a].hold(answers=is_cut)

    async def _stop(self) -> None:
        for relay in self._relays.values():
            relay.stop()
        await asyncio.sleep(0)  # the transports close their sockets
        await asyncio.sleep(0)


class _Relay:
    """A relay between its own port, to which one broker connects, and the port of another broker."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._server: asyncio.Server
        self._halves: set[_Half] = set()
        self._connecting: set[asyncio.Task[None]] = set()
        #: whether data is held back: True is the key for data of the connecting broker, False for data to it
        self._held = {True: False, False: False}

    @property
    def port(self) -> int:
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Half(self, asks=True), "127.0.0.1", 0)

    def stop(self) -> None:
        self._server.close()
        for task in self._connecting:
            task.cancel()
        for half in list(self._halves):
            half.abort()

    def hold(self, *, requests: bool | None = None, answers: bool | None = None) -> None:
        if requests is not None:
            self._held[True] = requests
        if answers is not None:
            self._held[False] = answers
        for half in list(self._halves):
            half.look()

    def holds(self, half: _Half) -> bool:
        return self._held[half.asks]

    def begin(self, half: _Half) -> None:
        self._halves.add(half)
        if half.asks:
            task = asyncio.get_running_loop().create_task(self._connect(half))
            self._connecting.add(task)
            task.add_done_callback(self._connecting.discard)

    def end(self, half: _Half) -> None:
        self._halves.discard(half)

    async def _connect(self, near: _Half) -> None:
        try:
            _, far = await asyncio.get_running_loop().create_connection(
                lambda: _Half(self, asks=False), "127.0.0.1", self._target
            )
        except OSError:
            near.abort()
        else:
            near.join(far)


class _Half(asyncio.Protocol):
    """One of a relay's two connections: with the broker that connects, or with the other broker."""

    def __init__(self, relay: _Relay, *, asks: bool) -> None:
        self._relay = relay
        #: whether the connecting broker is at the other end
        self.asks = asks
        self._other: _Half | None = None
        self._transport: asyncio.Transport
        #: what came before it could be passed on
        self._kept: deque[bytes] = deque()
        self._is_reading = True
        #: whether the other connection takes no more for now
        self.is_full = False
        self._is_lost = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._relay.begin(self)
        asyncio.get_running_loop().call_soon(self.look)  # uvloop begins to read after this call

    def join(self, other: _Half) -> None:
        """Pass bytes to `other`, and receive its bytes."""
        self._other, other._other = other, self
        for half in (self, other):
            half._pass_on()
        if self._is_lost:
            other._transport.close()
        if other._is_lost:
            self._transport.close()

    def look(self) -> None:
        """Start or stop reading, according to the state of the relay and of the other connection."""
        self._pass_on()
        reads = not (self.is_full or self._relay.holds(self))
        if reads != self._is_reading and not self._transport.is_closing():
            self._is_reading = reads
            with suppress(RuntimeError):
                self._transport.resume_reading() if reads else self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        self._kept.append(data)
        self._pass_on()

    def _pass_on(self) -> None:
        if self._other is not None and not self._relay.holds(self):
            while self._kept:
                self._other._transport.write(self._kept.popleft())

    def pause_writing(self) -> None:
        if self._other is not None:
            self._other.is_full = True
            self._other.look()

    def resume_writing(self) -> None:
        if self._other is not None:
            self._other.is_full = False
            self._other.look()

    def eof_received(self) -> None:
        if self._other is not None:
            self._other._transport.close()  # what was said before it goes out first

    def connection_lost(self, error: Exception | None) -> None:
        self._is_lost = True
        self._relay.end(self)
        if self._other is not None:
            self._other.abort() if error is not None else self._other._transport.close()

    def abort(self) -> None:
        self._transport.abort()
