"""A network in memory. It has hosts with names; links between them can be slow, cut or silent.

    network = SimulatedNetwork(random.Random(seed))
    broker = network.host("broker-1")       # the `Network` of one process on that host
    client = network.host("client")
    listening = broker.bind("", 9092)
    await listening.accept(Session, backlog=50)
    transport, protocol = await client.connect(MyProtocol, "broker-1", 9092)
    network.cut("client", "broker-1")       # both ways; one_way=True: only from first to second
    network.heal("client", "broker-1")
    network.reset("client", "broker-1")     # both ends are notified
    network.slow("broker-1", "client", 10_000)  # bytes a second
    broker.kill()                           # the process ends: the system closes its connections (call
                                            # `VirtualProcess.kill` too, which ends its code)
    network.pause("broker-1")               # nothing arrives and nothing leaves, until `resume`
    network.power_off("broker-1")           # no end is notified: half-open connections
    network.power_on("broker-1")            # a client that still writes on an old connection gets a reset

The network runs on any event loop, and on `VirtualTimeLoop` in virtual time. All events and their order
depend only on the seed and on the calls: no order depends on addresses or hashes.
"""

from __future__ import annotations

import asyncio
import errno
import itertools
import os
import random
import ssl
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from barnabas.base.environment.network import BindError, ProtocolFactory
from simulation.connection import Direction, Segment, Signal, SimulatedTransport

P = TypeVar("P", bound=asyncio.BaseProtocol)

_EVERY_INTERFACE = ("", "0.0.0.0", "::")
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_FIRST_EPHEMERAL_PORT = 49152
_PORTS = 65536


@dataclass(frozen=True, slots=True)
class NetworkConditions:
    """The behaviour of a network without faults.

    Attributes:
        delay: the shortest and the longest time that a segment takes, in seconds.
        window: the largest number of bytes of one direction that are in flight or unread. Further bytes wait
            in the sender's transport.
        splits: the probability, from 0 to 1, that written bytes arrive in two pieces.
        connect_timeout: the time without an answer after which a connect fails, in seconds.
        gives_up_after: the time without an acknowledgement after which a sender closes the connection, in
            seconds.
    """

    delay: tuple[float, float] = (0.0001, 0.002)
    window: int = 128 * 1024
    splits: float = 0.1
    connect_timeout: float = 127.0
    gives_up_after: float = 924.6


class Link:
    """The network from one host to another."""

    def __init__(self, network: SimulatedNetwork, source: _Machine, target: _Machine) -> None:
        self._network = network
        self._source = source
        self._target = target
        conditions = network.conditions
        self.context = network.context
        self.window = conditions.window
        self.gives_up_after = conditions.gives_up_after
        self.was_cut = False
        #: in bytes a second; None for no bound
        self.speed: float | None = None
        self._free_at = 0.0
        #: what waits for this link, in the order in which it began to wait
        self.stalled: dict[Direction, None] = {}

    @property
    def is_cut(self) -> bool:
        """Return whether no segment arrives: the link is cut, or a machine at one of its ends is paused."""
        # Without a call of `works`, because it is asked for each segment.
        source, target = self._source, self._target
        return self.was_cut or not (
            source.has_power and target.has_power and not source.is_paused and not target.is_paused
        )

    def carry_on(self) -> None:
        """Send the segments that have waited again, if the link is not cut."""
        if not self.is_cut:
            stalled, self.stalled = self.stalled, {}
            for direction in stalled:
                direction.carry_on()

    def draw_arrival(self, size: int) -> float:
        """Return the time at which a segment of `size` bytes arrives if it is sent now."""
        now = asyncio.get_running_loop().time()
        departure = now
        if self.speed is not None:
            departure = self._free_at = max(self._free_at, now) + size / self.speed
        return departure + self._network.draw_delay()

    def draw_backoff(self, longest: float) -> float:
        """Return the delay from the end of a cut to the next retransmission, at most
        `longest`, in seconds.
        """
        return self._network.rng.uniform(0.0, longest) + self._network.draw_delay()

    def split(self, data: bytes) -> tuple[bytes, ...]:
        """Divide `data` into the pieces that arrive separately."""
        network = self._network
        rng = network.rng
        if len(data) < 2 or rng.random() >= network.conditions.splits:
            return (data,)
        middle = rng.randrange(1, len(data))
        return data[:middle], data[middle:]

    def observe(self, segment: Segment) -> None:
        if self._network.observe is not None:
            self._network.observe(self._source.name, self._target.name, segment)


class _Machine:
    """A machine: its ports, and the processes on it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.has_power = True
        self.is_paused = False
        #: by port
        self.listening: dict[int, _ListeningSocket] = {}
        self.processes: dict[Host, None] = {}
        self._next_port = _FIRST_EPHEMERAL_PORT

    @property
    def works(self) -> bool:
        return self.has_power and not self.is_paused

    def free_port(self) -> int:
        for _ in range(_PORTS):
            port = self._next_port
            self._next_port = port + 1 if port + 1 < _PORTS else _FIRST_EPHEMERAL_PORT
            if port not in self.listening:
                return port
        raise OSError(errno.EADDRINUSE, os.strerror(errno.EADDRINUSE))


class SimulatedNetwork:
    """All hosts and the links between them.

    Args:
        rng: the source of every delay and split, used for nothing else, so that a run can be repeated.
        conditions: the behaviour without faults.
        observe: called with the names of source and target and with each segment that arrives, for a trace.
    """

    def __init__(
        self,
        rng: random.Random,
        conditions: NetworkConditions | None = None,
        *,
        observe: Callable[[str, str, Segment], None] | None = None,
    ) -> None:
        self.rng = rng
        self.conditions = conditions or NetworkConditions()
        self.observe = observe
        #: what the network does belongs to no process
        self.context = copy_context()
        self._machines: dict[str, _Machine] = {}
        self._links: dict[tuple[str, str], Link] = {}
        #: open connections, by a number that grows
        self._connections: dict[int, _Connection[Any]] = {}
        self._next_connection = itertools.count(1)

    # --- what exists ---

    def host(self, name: str) -> Host:
        """Return the network of a new process on this host. The first call for a name creates the host."""
        machine = self._machine(name)
        process = Host(self, machine)
        machine.processes[process] = None
        return process

    def connections(self) -> Iterator[tuple[str, str]]:
        """Yield the client and the server of each open connection, oldest first.
        Half-open connections count.
        """
        return ((connection.source, connection.target) for connection in self._connections.values())

    # --- faults ---

    def cut(self, source: str, target: str, *, one_way: bool = False) -> None:
        """Drop all segments from one host to the other, and unless `one_way` in the other direction. No end
        is notified.
        """
        for link in self._between(source, target, one_way=one_way):
            link.was_cut = True

    def heal(self, source: str, target: str, *, one_way: bool = False) -> None:
        """End a cut. Connections that no end has closed continue."""
        for link in self._between(source, target, one_way=one_way):
            link.was_cut = False
            link.carry_on()

    def heal_all(self) -> None:
        """End every cut and every slow link, and power on all machines."""
        for link in self._links.values():
            link.speed = None
            link.was_cut = False
        for machine in self._machines.values():
            machine.has_power = True
            machine.is_paused = False
        for link in self._links.values():
            link.carry_on()

    def is_cut(self, source: str, target: str) -> bool:
        """Return whether no segment gets from one host to the other."""
        return self._link(self._machine(source), self._machine(target)).is_cut

    def slow(self, source: str, target: str, speed: float | None) -> None:
        """Limit the link from one host to the other to `speed` bytes a second; None ends the limit."""
        self._link(self._machine(source), self._machine(target)).speed = speed

    def reset(self, one: str, other: str) -> int:
        """Reset all connections between two hosts. Both ends are notified at once. Return the number of
        connections.
        """
        ends = {(one, other), (other, one)}
        found = [c for c in self._connections.values() if (c.source, c.target) in ends]
        for connection in found:
            connection.reset()
        return len(found)

    def pause(self, name: str) -> None:
        """Stop the network of a machine until `resume`. `VirtualProcess.pause` stops its processes."""
        self._machine(name).is_paused = True

    def resume(self, name: str) -> None:
        """End a pause. Connections that no end has closed continue."""
        self._machine(name).is_paused = False
        for link in self._links.values():
            link.carry_on()

    def power_off(self, name: str) -> None:
        """Stop a machine and all its processes. No peer is notified, so their connections are half-open."""
        machine = self._machine(name)
        machine.has_power = False
        for process in list(machine.processes):
            process.lose_power()

    def power_on(self, name: str) -> None:
        """Start a machine again, without processes. It answers segments of old connections with a reset."""
        machine = self._machine(name)
        machine.has_power = True
        for link in self._links.values():
            link.carry_on()

    # --- inside ---

    def draw_delay(self) -> float:
        return self.rng.uniform(*self.conditions.delay)

    def open(self, connection: _Connection[Any]) -> int:
        number = next(self._next_connection)
        self._connections[number] = connection
        return number

    def forget(self, number: int) -> None:
        self._connections.pop(number, None)

    def find(self, name: str) -> _Machine | None:
        return self._machines.get(name)

    def links(self, source: _Machine, target: _Machine) -> tuple[Link, Link]:
        """Return the links in both directions."""
        return self._link(source, target), self._link(target, source)

    def _machine(self, name: str) -> _Machine:
        machine = self._machines.get(name)
        if machine is None:
            machine = self._machines[name] = _Machine(name)
        return machine

    def _link(self, source: _Machine, target: _Machine) -> Link:
        key = source.name, target.name
        link = self._links.get(key)
        if link is None:
            link = self._links[key] = Link(self, source, target)
        return link

    def _between(self, source: str, target: str, *, one_way: bool) -> list[Link]:
        there, back = self.links(self._machine(source), self._machine(target))
        return [there] if one_way else [there, back]


class Host:
    """The `Network` of one process on one host. After the end of the process, it
    opens no more connections.
    """

    def __init__(self, network: SimulatedNetwork, machine: _Machine) -> None:
        self._network = network
        self.machine = machine
        self.is_alive = True
        #: the ends of connections of this process, in the order in which they were made
        self.transports: dict[SimulatedTransport, None] = {}

    @property
    def name(self) -> str:
        return self.machine.name

    def machine_name(self) -> str:
        return self.machine.name

    def bind(self, host: str, port: int) -> _ListeningSocket:
        self._check_alive()
        if host not in (*_EVERY_INTERFACE, *_LOOPBACK, self.name):
            raise BindError(f"{host} is not an address of this machine")
        port = port or self.machine.free_port()
        if port in self.machine.listening:
            raise BindError("the port is in use; stop that, or choose another port")
        listening = self.machine.listening[port] = _ListeningSocket(self, port)
        return listening

    async def connect(
        self, protocol_factory: ProtocolFactory[P], host: str, port: int, *, tls: ssl.SSLContext | None = None
    ) -> tuple[asyncio.Transport, P]:
        self._check_alive()
        _refuse_tls(tls)
        target = self._network.find(self.name if host in _LOOPBACK else host)
        if target is None:
            await asyncio.sleep(self._network.draw_delay())
            raise OSError(errno.EHOSTUNREACH, f"{host} is not known as a host name")
        connection = _Connection(self._network, self, target, port, protocol_factory)
        protocol = await connection.established()
        return connection.client, protocol

    def kill(self) -> None:
        """End the process: the system closes its connections and listeners, without a
        call of its protocols.
        """
        self._end()
        for transport in list(self.transports):
            transport.kill()

    def lose_power(self) -> None:
        """Stop the machine of the process."""
        self._end()
        for transport in list(self.transports):
            transport.vanish()

    def _end(self) -> None:
        self.is_alive = False
        self.machine.processes.pop(self, None)
        for listening in list(self.machine.listening.values()):
            if listening.host is self:
                listening.close()

    def _check_alive(self) -> None:
        if not self.is_alive:
            raise _network_down()


class _ListeningSocket:
    """A listening port of a host. Connections wait for `accept`, as in the operating system."""

    def __init__(self, host: Host, port: int) -> None:
        self.host = host
        self.port = port
        self._factory: ProtocolFactory[asyncio.BaseProtocol] | None = None
        self._context = copy_context()
        self._waiting: list[SimulatedTransport] = []

    async def accept(
        self,
        protocol_factory: ProtocolFactory[P],
        *,
        backlog: int,
        tls: Callable[[], ssl.SSLContext] | None = None,
    ) -> None:
        _refuse_tls(tls)
        self._factory = protocol_factory
        self._context = copy_context()
        waiting, self._waiting = self._waiting, []
        for transport in waiting:
            if not transport.is_gone:
                self.take(transport)

    def take(self, transport: SimulatedTransport) -> None:
        """Add an established connection."""
        if self._factory is None:
            self._waiting.append(transport)
        else:
            try:
                protocol = self._context.copy().run(self._factory)
            except Exception:
                transport.kill()
                raise
            transport.start(protocol, self._context)

    def close(self) -> None:
        if self.host.machine.listening.get(self.port) is self:
            del self.host.machine.listening[self.port]
        for transport in self._waiting:
            transport.kill()
        self._waiting.clear()


class _Connection(Generic[P]):
    """A connection, from its first segment until both ends have ended."""

    def __init__(
        self,
        network: SimulatedNetwork,
        process: Host,
        target: _Machine,
        port: int,
        factory: ProtocolFactory[P],
    ) -> None:
        machine = process.machine
        self.source, self.target = machine.name, target.name
        self._network = network
        self._process = process
        self._machine = target
        self._port = port
        self._factory = factory
        self._context = copy_context()
        self._loop = asyncio.get_running_loop()
        there, back = network.links(machine, target)
        self._client_name = machine.name, machine.free_port()
        self._server_name = target.name, port
        self._outgoing = Direction(there, back, self._reach_server)
        self._incoming = Direction(back, there, self._reach_client)
        self.client = SimulatedTransport(
            self._outgoing,
            self._incoming,
            sockname=self._client_name,
            peername=self._server_name,
            on_lost=self._client_lost,
        )
        self._incoming.receive = self._reach_client
        self._is_established = False
        self._server: SimulatedTransport | None = None
        self._server_process: Host | None = None
        self._answer: asyncio.Future[P] = self._loop.create_future()
        self._number = network.open(self)
        process.transports[self.client] = None

    async def established(self) -> P:
        """Wait until the connection is established, and return the client's protocol.

        Raises:
            OSError: the server refuses the connection, or the time is up.
        """
        timer = self._loop.call_later(self._network.conditions.connect_timeout, self._time_out)
        self._outgoing.signal(Signal.SYN)
        try:
            return await self._answer
        except BaseException:
            if self._is_established:
                self.client.abort()
            else:
                self.client.vanish()
            raise
        finally:
            timer.cancel()

    def reset(self) -> None:
        self._fail(ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET)))
        self.client.reset()
        if self._server is not None:
            self._server.reset()

    def _reach_client(self, segment: Segment) -> None:
        """Process a segment that arrives at the client before the connection is established."""
        if segment is Signal.REFUSED:
            self._fail(ConnectionRefusedError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED)))
        elif segment is Signal.SYN_ACK and not self._answer.done():
            self._outgoing.signal(Signal.ACK)
            self._incoming.receive = self.client.receive
            self._is_established = True
            try:
                protocol = self._context.copy().run(self._factory)
            except Exception as error:
                self._answer.set_exception(error)
                return
            self.client.start(protocol, self._context)
            self._answer.set_result(protocol)
        elif segment is not Signal.RESET:
            # The process has given up meanwhile.
            self._outgoing.signal(Signal.RESET)

    def _reach_server(self, segment: Segment) -> None:
        """Process a segment that arrives at the server before the connection is established."""
        listening = self._machine.listening.get(self._port)
        if segment is Signal.SYN:
            self._incoming.signal(Signal.REFUSED if listening is None else Signal.SYN_ACK)
        elif segment is Signal.ACK and listening is not None:
            self._server = SimulatedTransport(
                self._incoming,
                self._outgoing,
                sockname=self._server_name,
                peername=self._client_name,
                on_lost=self._server_lost,
            )
            self._server_process = listening.host
            listening.host.transports[self._server] = None
            listening.take(self._server)
        elif segment is not Signal.RESET:
            self._incoming.signal(Signal.RESET)

    def _time_out(self) -> None:
        self._fail(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def _fail(self, error: OSError) -> None:
        if not self._answer.done():
            self._answer.set_exception(error)

    def _client_lost(self, transport: SimulatedTransport) -> None:
        self._process.transports.pop(transport, None)
        if not self._process.is_alive:
            self._fail(_network_down())
        self._forget_if_over()

    def _server_lost(self, transport: SimulatedTransport) -> None:
        assert self._server_process is not None
        self._server_process.transports.pop(transport, None)
        self._forget_if_over()

    def _forget_if_over(self) -> None:
        if self.client.is_gone and (self._server is None or self._server.is_gone):
            self._network.forget(self._number)


def _network_down() -> OSError:
    return OSError(errno.ENETDOWN, os.strerror(errno.ENETDOWN))


def _refuse_tls(tls: object) -> None:
    if tls is not None:
        raise ValueError("the network in memory does not speak TLS")
