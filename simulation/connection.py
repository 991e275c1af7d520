"""One connection of the network in memory: two asyncio transports, and the two directions between them.

A protocol sees no difference from TCP and asyncio's own transports:

- Bytes arrive complete and in order, but not in the pieces in which they were written. Only a limited number
  (the window) is in transit or unread. The sender's transport keeps the rest, and pauses its protocol.
- `close` sends the written bytes, then ends the direction. The connection is reset if the closed side has
  unread bytes or receives more. `abort` discards the bytes that were not sent.
- Over a cut link nothing arrives, neither bytes nor acknowledgements, and neither side is notified. After the
  link is healed, the connection continues when the next retransmission is due. A sender that has waited too
  long closes the connection.
- A side notices a reset when it reads or writes.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from enum import Enum
from typing import Any, Protocol

#: asyncio's own limit of what it reads at once, in bytes.
_LARGEST_READ = 256 * 1024
_DEFAULT_HIGH_WATER = 64 * 1024
#: The longest time between two retransmissions, in seconds.
_LONGEST_BACKOFF = 10.0


class Signal(Enum):
    """The meaning of a segment without bytes."""

    #: connection request
    SYN = "syn"
    #: the listening machine agrees
    SYN_ACK = "syn-ack"
    #: the connecting machine has heard of it: the connection can be accepted
    ACK = "ack"
    #: nobody listens
    REFUSED = "refused"
    #: no more bytes follow
    FIN = "fin"
    #: the sender knows of no such connection (any more)
    RESET = "reset"


Segment = bytes | Signal


class Link(Protocol):
    """The network from one host to another, as a connection uses it."""

    #: in which the callbacks of connections run
    context: Context
    #: how many bytes may be on their way or unread
    window: int
    #: after how many seconds without an acknowledgement a sender ends its connection
    gives_up_after: float
    #: what waits for this link, in the order in which it began to wait
    stalled: dict[Direction, None]

    @property
    def is_cut(self) -> bool:
        """Return whether no segment arrives."""

    def draw_arrival(self, size: int) -> float:
        """Return the time at which a segment of `size` bytes arrives if it is sent now."""

    def draw_backoff(self, longest: float) -> float:
        """Return the delay from the end of a cut to the next retransmission, at most
        `longest`, in seconds.
        """

    def split(self, data: bytes) -> tuple[bytes, ...]:
        """Divide `data` into the pieces that arrive separately."""

    def observe(self, segment: Segment) -> None:
        """Report an arriving segment to the trace of the network."""


class Direction:
    """One direction of a connection: the bytes from the write until the receiving protocol has read them."""

    def __init__(self, link: Link, back: Link, receive: Callable[[Segment], None]) -> None:
        self.link = link
        #: the same machines' link the other way, by which acknowledgements come
        self.back = back
        #: told of each segment that arrives
        self.receive = receive
        #: told when there is room for what waits, and when the connection is given up
        self.on_sent: Callable[[], None] = lambda: None
        self.on_given_up: Callable[[], None] = lambda: None
        self._loop = asyncio.get_running_loop()
        #: the network's: what it has begun goes on when the process that wrote is killed
        self.context = link.context
        self._unsent: deque[bytes] = deque()
        self.unsent_bytes = 0
        #: sent, but not yet taken by the receiving protocol
        self._unacknowledged = 0
        self._held_acknowledgements = 0
        self._in_flight: deque[tuple[float, Segment]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._resume_scheduled = False
        #: whether what is in flight waits for a cut link
        self._waits_for_link = False
        #: when the peer stopped acknowledging what is sent; None while it does
        self._stalled_at: float | None = None
        self._give_up: asyncio.TimerHandle | None = None
        self._ends = False

    def write(self, data: bytes) -> None:
        """Send `data` as soon as the window allows it."""
        waits = bool(self._unsent)
        self._unsent.append(data)
        self.unsent_bytes += len(data)
        if not waits:
            self._send()

    def end(self) -> None:
        """Send the end of the stream (FIN) after all written bytes."""
        self._ends = True
        if not self._unsent:
            self._send()

    def signal(self, signal: Signal) -> None:
        """Send a signal after the segments in flight."""
        self._launch(signal)

    def drop_unsent(self) -> None:
        self._unsent.clear()
        self.unsent_bytes = 0

    def acknowledge(self, size: int) -> None:
        """Note that the receiving protocol has read `size` bytes, and send as many more."""
        self._held_acknowledgements += size
        if self.back.is_cut:
            self._stall()
            self.back.stalled[self] = None
            return
        self._take_acknowledgements()

    def carry_on(self) -> None:
        """Continue after the end of a cut of this link, or of the link in the other direction."""
        if self._waits_for_link and not self.link.is_cut:
            self._waits_for_link = False
            assert self._stalled_at is not None
            stalled = min(self._loop.time() - self._stalled_at, _LONGEST_BACKOFF)
            self._arm(self._loop.time() + self.link.draw_backoff(stalled))
        if self._held_acknowledgements and not self.back.is_cut:
            self._take_acknowledgements()
        if not self._waits_for_link and not self._held_acknowledgements:
            self._unstall()

    def forget(self) -> None:
        """Drop everything that is in flight or not sent yet."""
        self._unstall()
        self._waits_for_link = False
        self._ends = False
        self.drop_unsent()
        self._in_flight.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _take_acknowledgements(self) -> None:
        self._unacknowledged -= self._held_acknowledgements
        self._held_acknowledgements = 0
        if self._unsent and not self._resume_scheduled:
            self._resume_scheduled = True
            self._loop.call_soon(self._resume, context=self.context)

    def _resume(self) -> None:
        self._resume_scheduled = False
        if self._unsent:
            self._send()
            self.on_sent()

    def _send(self) -> None:
        while self._unsent and (room := self.link.window - self._unacknowledged) > 0:
            head = self._unsent[0]
            if len(head) <= room:
                piece = self._unsent.popleft()
            else:
                piece, self._unsent[0] = head[:room], head[room:]
            self.unsent_bytes -= len(piece)
            self._unacknowledged += len(piece)
            for part in self.link.split(piece):
                self._launch(part)
        if self._ends and not self._unsent:
            self._ends = False
            self._launch(Signal.FIN)

    def _launch(self, segment: Segment) -> None:
        arrival = self.link.draw_arrival(len(segment) if isinstance(segment, bytes) else 0)
        # One behind another arrives after it, whenever that is.
        self._in_flight.append((arrival, segment))
        if self._timer is None and not self._waits_for_link:
            self._arm(arrival)

    def _arm(self, when: float) -> None:
        self._timer = self._loop.call_at(when, self._arrive, context=self.context)

    def _arrive(self) -> None:
        self._timer = None
        if self.link.is_cut:
            self.link.stalled[self] = None
            self._waits_for_link = True
            self._stall()
            return
        now = self._loop.time()
        arrived: list[Segment] = []
        while self._in_flight and self._in_flight[0][0] <= now:
            arrived.append(self._in_flight.popleft()[1])
        if self._in_flight:
            self._arm(self._in_flight[0][0])
        for segment in arrived:
            self.link.observe(segment)
            self.receive(segment)

    def _stall(self) -> None:
        if self._stalled_at is None:
            self._stalled_at = self._loop.time()
            self._give_up = self._loop.call_later(
                self.link.gives_up_after, self._given_up, context=self.context
            )

    def _unstall(self) -> None:
        self._stalled_at = None
        if self._give_up is not None:
            self._give_up.cancel()
            self._give_up = None

    def _given_up(self) -> None:
        self.forget()
        self.on_given_up()


class SimulatedTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        outgoing: Direction,
        incoming: Direction,
        *,
        sockname: tuple[str, int],
        peername: tuple[str, int],
        on_lost: Callable[[SimulatedTransport], None],
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername})
        self._loop = asyncio.get_running_loop()
        self._outgoing = outgoing
        self._incoming = incoming
        self._on_lost = on_lost
        #: the process's, in which its protocol is called
        self._context = outgoing.context
        self._protocol: asyncio.BaseProtocol | None = None
        self._received: deque[Segment] = deque()
        self._reading = True
        self._delivery_scheduled = False
        self._high, self._low = _DEFAULT_HIGH_WATER, _DEFAULT_HIGH_WATER // 4
        self._protocol_paused = False
        self._closing = False
        self._eof_written = False
        #: whether the direction to here was reset, which nobody has noticed yet
        self._was_reset = False
        #: the system knows this end no more: what arrives is answered by a reset
        self.is_gone = False
        #: the process has ended: its protocol hears nothing any more
        self._is_dead = False
        outgoing.on_sent = self._sent
        outgoing.on_given_up = self._given_up
        incoming.receive = self.receive

    # --- the protocol's side ---

    def start(self, protocol: asyncio.BaseProtocol, context: Context) -> None:
        """Give the connection to its protocol, and deliver the segments that have arrived.

        The protocol's methods run in `context`.
        """
        self._context = context
        self._protocol = protocol
        self._call(protocol.connection_made, self)
        self._schedule_delivery()

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if self._closing or self._reading:
            return
        self._reading = True
        self._schedule_delivery()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._eof_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        if self._was_reset:
            self._lose(_reset())
            return
        self._outgoing.write(bytes(data))
        if self._outgoing.unsent_bytes > self._high and not self._protocol_paused:
            self._protocol_paused = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._closing and not self._eof_written:
            self._eof_written = True
            self._outgoing.end()

    def get_write_buffer_size(self) -> int:
        return self._outgoing.unsent_bytes

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = _DEFAULT_HIGH_WATER if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._outgoing.unsent_bytes:
            self._finish()

    def abort(self) -> None:
        if self.is_gone:
            return
        self._closing = True
        self._outgoing.drop_unsent()
        self._finish()

    # --- the machine's side ---

    def kill(self) -> None:
        """End the connection because the process has ended. The system closes it, and the protocol is not
        called.
        """
        if not self.is_gone:
            self._is_dead = True
            self.abort()

    def vanish(self) -> None:
        """Remove this end because its machine has stopped. Neither side is notified."""
        self._is_dead = self.is_gone = self._closing = True
        self._received.clear()
        self._outgoing.forget()
        self._on_lost(self)

    def reset(self) -> None:
        """End the connection because the network has reset it. This end is notified."""
        if not self.is_gone:
            self.receive(Signal.RESET)

    def receive(self, segment: Segment) -> None:
        """Process a segment that has arrived at this machine."""
        if self.is_gone:
            # An answer to a reset would go on for ever.
            if segment is not Signal.RESET:
                self._outgoing.signal(Signal.RESET)
            return
        if segment is Signal.RESET:
            self._received.clear()
            self._was_reset = True
            if self._reading or self._outgoing.unsent_bytes or self._closing:
                self._lose(_reset())
            return
        self._received.append(segment)
        self._deliver()

    def _schedule_delivery(self) -> None:
        if (self._received or self._was_reset) and not self._delivery_scheduled:
            self._delivery_scheduled = True
            self._loop.call_soon(self._deliver_scheduled, context=self._outgoing.context)

    def _deliver_scheduled(self) -> None:
        self._delivery_scheduled = False
        if self._was_reset and self._reading:
            self._lose(_reset())
        self._deliver()

    def _deliver(self) -> None:
        if self._delivery_scheduled or self._protocol is None:
            return
        while self._received and self._reading and not self._closing:
            segment = self._received.popleft()
            if isinstance(segment, bytes):
                pieces, size = [segment], len(segment)
                while self._received and isinstance(following := self._received[0], bytes):
                    if size + len(following) > _LARGEST_READ:
                        break
                    pieces.append(following)
                    size += len(following)
                    self._received.popleft()
                self._incoming.acknowledge(size)
                self._call(self._hand_over, b"".join(pieces))
            elif segment is Signal.FIN:
                keep_open = self._call(self._end_of_stream)
                if not keep_open:
                    self.close()

    def _hand_over(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)
            return
        rest = memoryview(data)
        while rest:
            protocol = self._protocol  # which may have been exchanged while it was called
            if not isinstance(protocol, asyncio.BufferedProtocol):
                assert isinstance(protocol, asyncio.Protocol)
                protocol.data_received(bytes(rest))
                return
            buffer = memoryview(protocol.get_buffer(len(rest))).cast("B")
            size = min(len(buffer), len(rest))
            if not size:
                raise RuntimeError("get_buffer() returned an empty buffer")
            buffer[:size] = rest[:size]
            rest = rest[size:]
            protocol.buffer_updated(size)

    def _end_of_stream(self) -> bool:
        protocol = self._protocol
        assert isinstance(protocol, asyncio.Protocol | asyncio.BufferedProtocol)
        return bool(protocol.eof_received())

    def _sent(self) -> None:
        """Call the protocol's `resume_writing` if enough bytes were sent."""
        size = self._outgoing.unsent_bytes
        if self._closing:
            if not size:
                self._finish()
        elif self._protocol_paused and size <= self._low:
            self._protocol_paused = False
            self._call(self.get_protocol().resume_writing)

    def _finish(self) -> None:
        """Close the connection after all bytes were sent. If unread bytes are left,
        reset it, as Linux does.
        """
        unread = any(isinstance(segment, bytes) for segment in self._received)
        if unread:
            self._outgoing.signal(Signal.RESET)
        elif not self._eof_written:
            self._outgoing.end()
        self._lose(None)

    def _given_up(self) -> None:
        if not self.is_gone:
            self._lose(TimeoutError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT)))

    def _lose(self, error: OSError | None) -> None:
        if self.is_gone:
            return
        self.is_gone = self._closing = True
        self._received.clear()
        if error is not None:
            self._outgoing.drop_unsent()
        self._on_lost(self)
        if self._protocol is not None:
            self._loop.call_soon(
                self._call, self._protocol.connection_lost, error, context=self._outgoing.context
            )

    def _call(self, callback: Callable[..., Any], *arguments: object) -> Any:
        """Call the protocol. If it raises, end the connection and report the error to the loop, as asyncio
        does.
        """
        if self._is_dead:
            return None
        try:
            return self._context.copy().run(callback, *arguments)
        except Exception as error:
            self._loop.call_exception_handler(
                {
                    "message": "Fatal error: a protocol's callback failed.",
                    "exception": error,
                    "transport": self,
                    "protocol": self._protocol,
                }
            )
            self.abort()
            return None


def _reset() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
