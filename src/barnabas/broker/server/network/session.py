"""One client connection: receives requests and sends replies, in order and with limited memory."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from barnabas.base.environment.network import canonical_address, set_buffer_sizes
from barnabas.base.errors import ProtocolError
from barnabas.base.text import logger_of
from barnabas.broker.awaitables import LongPoll, PromptFuture
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.busy_polling import BusyPolling
from barnabas.broker.server.network.close_log import CloseLog
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.broker.server.network.in_place import InPlaceReceiver, SharedReceiver
from barnabas.broker.server.network.outbox import Outbox
from barnabas.broker.server.network.tls import why_not_secured
from barnabas.broker.server.network.turns import UNLIMITED, Turns
from barnabas.broker.server.requests.context import Chunks, ConnectionCache
from barnabas.broker.server.requests.order import NOTHING
from barnabas.kafka.protocol.framing import FrameDecoder
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.acls import Access
from barnabas.kafka.security.principal import ANONYMOUS, Principal

log = logger_of(__name__, is_limited=True)

#: starts a request; its reply goes to the session. Raises ProtocolError: the connection is to be closed
Serve: TypeAlias = "Callable[[Readable, ClientSession], None]"

#: A connection is read no further while this many of its requests are unanswered ...
MAX_UNANSWERED = 64
#: ... or this many bytes of finished replies wait behind one that is not.
MAX_HELD_BYTES = 1 << 20
#: With more bytes missing than this, receiving in place saves more than exchanging the protocol twice costs.
WORTH_IN_PLACE = 256 * 1024
#: How long a connection that we close may take to read what was sent to it, in seconds.
CLOSE_GRACE = 5.0
#: Longest time in seconds that a client which sends no more can wait for its replies. A client that has ended
#: looks the same, and its requests can hold places that others wait for.
HALF_CLOSED_SECONDS = 60.0

_FAILED = "the broker failed to serve a request"


def _nothing() -> None:
    """Do nothing: a session calls this in place of `give_up` when its connection has already ended."""


class PendingReply:
    """An entry in a session's queue of replies: a request whose reply the session has not sent yet."""

    __slots__ = ("cancels", "chunks", "done", "future")

    def __init__(self, future: asyncio.Future[Any] | None, cancels: bool) -> None:
        #: future of the response; None if the reply is ready
        self.future = future
        #: whether to cancel the future when the connection ends
        self.cancels = cancels
        self.chunks: Chunks | None = None
        self.done = False


class SessionHost(Protocol):
    """The listener of a session, as far as the session uses it.

    It also has the objects that all connections of the broker share.
    """

    endpoint: Endpoint
    busy_polling: BusyPolling | None
    turns: Turns
    #: buffer for decrypted TLS data (`SharedReceiver`)
    shared_buffer: memoryview

    @property
    def config(self) -> BrokerConfig:
        """The present settings of the broker."""

    @property
    def close_log(self) -> CloseLog: ...

    @property
    def first_request_bytes(self) -> int:
        """Largest size in bytes of a request before the client has authenticated."""

    def begin(self) -> Serve:
        """Return the function that handles the requests of a new connection."""

    def user_of(self, certificate: bytes | None) -> Principal:
        """Return the principal that a client has before it logs in.

        Args:
            certificate: the client's certificate in DER; None if the client has shown none.

        Raises:
            ValueError: the certificate gives no principal.
        """

    def admit(self, session: ClientSession) -> float | None:
        """Count a new connection, and return the seconds to wait before the broker serves it.

        Return None if the connection exceeds a limit: the caller must close it.
        """

    def forget(self, session: ClientSession) -> None:
        """Stop counting a connection that has ended."""


class ClientSession(asyncio.Protocol):
    """A client's connection, from its accept to its close.

    The session begins a request when all earlier requests are answered (exceptions: `requests.order`). It
    sends replies in the order of the requests. It stops reading in three cases: a request has to wait, too
    many requests are unanswered, or the client does not read its replies. So the memory of one connection has
    a limit.

    Args:
        host: listener that has accepted the connection.
        connection_id: number of the connection, unique in the life of the broker.
    """

    client_software_name = ""
    client_software_version = ""

    def __init__(self, host: SessionHost, connection_id: int) -> None:
        self.connection_id = connection_id
        self.listener = host.endpoint.name
        self.client_host = ""
        self.client_port = 0
        self.principal = ANONYMOUS
        #: whether the client has logged in by SASL
        self.has_logged_in = False
        self._host = host
        self._serve = host.begin()
        self._busy_polling = host.busy_polling
        self._turns = turns = host.turns
        self._now = turns.now
        self._frames = FrameDecoder(host.first_request_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport = None  # type: ignore[assignment]
        self._outbox: Outbox = None  # type: ignore[assignment]
        #: the transport's protocol in this session's stead, but while a large request is received
        self._receiver: asyncio.BaseProtocol | None = None
        self._backlog: deque[Readable] = deque()
        #: caches about the last requests, by API key
        self.caches: dict[int, ConnectionCache] = {}
        #: permissions of `principal`, once the authorizer has found them (`Client`)
        self.access: Access | None = None
        self._unanswered: deque[PendingReply] = deque()
        #: number of unanswered requests during which no other request can begin
        self._in_turn = 0
        #: how many let those of an API begin, and the API's key: their own, so that it is the same for all
        self._waiting = 0
        self._beside = NOTHING
        self._held = 0
        self._write_paused = False
        #: whether `Turns` will call `_begin_waiting`. Until then, the transport pauses only if more data
        #: arrive: most clients wait for their response, and need no pause
        self._waits_for_turn = False
        self._closing = False
        #: whether the client has ended its direction, and waits for its replies
        self._is_half_closed = False
        self._is_admitted = False
        #: ends the connection, whether it speaks TLS already or not
        self._give_up: Callable[[], object]
        #: when the client last sent something or read on, in seconds of the loop
        self.last_active = self._loop.time()
        self._idle_timer: asyncio.TimerHandle | None = None
        #: ends the time in which the client is muted
        self._unmuting: asyncio.TimerHandle | None = None
        #: ends a connection that we have closed, or that is half-closed
        self._aborting: asyncio.TimerHandle | None = None
        #: functions to call when the connection has closed; None once it has
        self._on_closed: list[Callable[[], None]] | None = []

    # --- asyncio's side ---

    def arriving(self, host: str, give_up: Callable[[], object]) -> float | None:
        """Count a new connection, before the TLS handshake if there is one (`Secured.arriving`).

        Return the seconds to wait before the broker serves the connection. Return None if the connection
        exceeds a limit: the caller must close it.

        Args:
            host: the client's address.
            give_up: the session calls it to end the connection at once, when the broker stops.
        """
        self.client_host = canonical_address(host)
        self._give_up = give_up
        wait = self._host.admit(self)
        self._is_admitted = wait is not None
        self._closing = wait is None
        return wait

    def not_secured(self, error: BaseException) -> None:
        """Stop counting this connection, because its TLS handshake failed (`Secured.not_secured`).

        Log the reason, unless `why_not_secured` finds none in `error`.
        """
        self._closing = True
        self._host.forget(self)
        reason = why_not_secured(error) if isinstance(error, Exception) else None
        if reason is not None:
            self._log_closing(reason)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        self._outbox = Outbox(self._transport)
        wait = None
        peer = transport.get_extra_info("peername")
        self.client_port = peer[1] if peer else 0
        if not self._is_admitted:
            wait = self.arriving(peer[0] if peer else "", self._transport.abort)
        self._give_up = self._transport.abort
        if self._closing:  # one too many, or the broker stops
            self._transport.abort()
            return
        tls = transport.get_extra_info("ssl_object")
        if tls is not None:
            try:
                self.principal = self._host.user_of(tls.getpeercert(binary_form=True))
            except ValueError as error:
                self.close(str(error))
                return
            self._receiver = receiver = SharedReceiver(self, self._host.shared_buffer)
            self._transport.set_protocol(receiver)
            # At the end of a TLS connection, uvloop discards what it has decrypted and not passed on. It may
            # announce no end of the sending, either. So no request waits for a turn, with reading paused.
            self._turns = UNLIMITED
        if wait:
            self.mute(wait)
        config = self._host.config
        set_buffer_sizes(
            transport, send=config.socket_send_buffer_bytes, receive=config.socket_receive_buffer_bytes
        )
        self._watch_idle()

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        self.last_active = self._loop.time()
        frames: Sequence[Readable] = ()
        try:
            frames = self._frames.feed(data)
            if not frames:
                large = self._frames.large
                if large is not None and large.missing > WORTH_IN_PLACE:
                    self._transport.set_protocol(
                        InPlaceReceiver(self, large, self._more_received, self._large_frame_received)
                    )
                return
            if self._backlog:
                self._backlog.extend(frames)
                self._transport.pause_reading()
                return
            if len(frames) > 1:
                self._outbox.cork()
            for index, frame in enumerate(frames):
                if not self._may_begin(frame):
                    self._backlog.extend(frames[index:])
                    if not self._waits_for_turn:
                        self._transport.pause_reading()
                    return
                if not frame:
                    self._check_stream()
                self._serve(frame, self)
            if self._busy_polling is not None:
                self._busy_polling.served()
        except ProtocolError as error:
            self.close(str(error))
        finally:
            if len(frames) > 1:  # a synchronous client's requests come alone: they skip the call
                self._outbox.uncork()

    def eof_received(self) -> bool:
        """Return whether to keep the connection, because the client still waits for replies.

        A client can end its sending and read on. As in Apache Kafka, the broker first answers all requests
        that it has received, and then closes the connection. This takes at most ``connections.max.idle.ms``,
        and at most `HALF_CLOSED_SECONDS`. Long polls respond at once: most clients that end their sending
        have ended, and must not acquire records of share groups. The transport of a TLS connection cannot
        stay open.
        """
        is_tls = self._receiver is not None
        if self._closing or is_tls or self._is_answered():
            return False
        self._is_half_closed = True
        self._frames.clear()  # the rest of an incomplete request never comes
        self._transport.set_protocol(self)
        idle_ms = self._host.config.connections_max_idle_ms
        limit = min(idle_ms / 1000, HALF_CLOSED_SECONDS) if idle_ms >= 0 else HALF_CLOSED_SECONDS
        self._aborting = self._loop.call_later(limit, self._transport.abort)
        self._end_long_polls(NOTHING)
        return True

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self.last_active = self._loop.time()
        self._send()
        self._continue()
        self._close_if_answered()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        for timer in (self._idle_timer, self._unmuting, self._aborting):
            if timer is not None:
                timer.cancel()
        self._host.forget(self)
        self._outbox.clear()
        self._backlog.clear()
        for cache in self.caches.values():
            cache.close()
        self.caches.clear()
        self._frames.clear()
        self._let_go()
        for waiting in self._unanswered:
            if waiting.cancels and waiting.future is not None:
                waiting.future.cancel()
        self._unanswered.clear()
        on_closed, self._on_closed = self._on_closed, None
        for callback in on_closed or ():
            callback()

    # --- the dispatcher's side ---

    def reply(self, chunks: Chunks) -> None:
        """Send a reply after the replies to all earlier requests.

        Discard the reply if the connection is closing.
        """
        if self._unanswered:
            waiting = PendingReply(None, False)
            self._unanswered.append(waiting)
            self._send_in_order(waiting, chunks)
        elif not self._closing:
            self._send(chunks)

    def park(
        self,
        future: asyncio.Future[Any],
        finish: Callable[[asyncio.Future[Any]], Chunks | None],
        cancel: bool,
        beside: int = NOTHING,
    ) -> None:
        """Send the reply to a request when `future` is done (`Client.park`).

        The replies to later requests wait, so that replies keep the order of the requests. If the future is
        cancelled, or if `finish` raises an exception, close the connection.

        Args:
            future: done when the request is executed.
            finish: called with the done future; returns the reply, or None if the request gets no reply.
            cancel: whether to cancel `future` when the connection ends.
            beside: key of the API whose other requests on this connection can begin while this one waits.
                With NOTHING, no request can begin.
        """
        waiting = PendingReply(future, cancel)
        self._unanswered.append(waiting)
        if beside == NOTHING:
            self._in_turn += 1
        else:
            self._beside = beside
            self._waiting += 1

        def settled(done: asyncio.Future[Any]) -> None:
            if beside == NOTHING:
                self._in_turn -= 1
            else:
                self._waiting -= 1
            if done.cancelled():
                if not self._closing:
                    self.close("a request was cancelled")
                return
            try:
                chunks = finish(done)
            except Exception:
                self.close(_FAILED)  # without a response, the client would wait for its own timeout
                raise
            if not self._closing:
                self._send_in_order(waiting, chunks)
                if self._is_half_closed:
                    self._loop.call_soon(self._close_if_answered)
                if not isinstance(done, PromptFuture):
                    self._continue()
                elif self._backlog:  # in another turn, because another request may have ended this one
                    self._loop.call_soon(self._continue)

        if isinstance(future, PromptFuture):
            future.call_at_once(settled)
        else:
            future.add_done_callback(settled)

    def mute(self, seconds: float) -> None:
        """Begin no request for this number of seconds (`Client.mute`), or until the end of a longer mute."""
        if self._closing:
            return
        if self._unmuting is not None:
            if self._unmuting.when() >= self._loop.time() + seconds:
                return
            self._unmuting.cancel()
        self._unmuting = self._loop.call_later(seconds, self._unmute)

    def close(self, reason: str, level: int = logging.WARNING) -> None:
        """Close the connection, and log the reason. Do nothing if the connection is already closing.

        The client can still receive the sent replies for `CLOSE_GRACE` seconds.

        Args:
            reason: text for the log.
            level: level of the log line.
        """
        if self._closing:
            return
        self._closing = True
        self._log_closing(reason, level)
        self._outbox.uncork()
        self._transport.close()
        if self._aborting is not None:
            self._aborting.cancel()
        self._aborting = self._loop.call_later(CLOSE_GRACE, self._transport.abort)

    def when_closed(self, callback: Callable[[], None]) -> None:
        """Call `callback` when the connection has closed, or at once if it already has.

        See `ClientConnection.when_closed`.
        """
        if self._on_closed is None:
            callback()
        else:
            self._on_closed.append(callback)

    def logged_in(self, principal: Principal, serve: Serve) -> None:
        """Set the client's principal after its login.

        From now on, `serve` handles the client's requests. Their size limit is ``socket.request.max.bytes``.
        """
        self.has_logged_in = True
        self.principal = principal
        self.access = None
        self._serve = serve
        self._frames.max_size = self._host.config.socket_request_max_bytes

    def shut_down(self) -> None:
        """Abort the connection, because the broker stops. Discard unsent replies."""
        self._closing = True
        self._give_up()

    # --- inside ---

    def _is_answered(self) -> bool:
        """Whether no received request waits, and the transport has all replies."""
        return not (self._unanswered or self._backlog or self._outbox.waiting)

    def _close_if_answered(self) -> None:
        """Close a half-closed connection when the client has all of its replies."""
        if self._is_half_closed and not self._closing and self._is_answered():
            self._closing = True
            self._transport.close()

    def _let_go(self) -> None:
        """Remove the references to objects that refer to this session.

        Without this, a reference cycle would keep the received data in memory for long, because a broker
        rarely runs Python's collector of reference cycles (`broker/server/garbage.py`).
        """
        self._receiver = None
        self._give_up = _nothing
        self._transport = None  # type: ignore[assignment]
        self._outbox = None  # type: ignore[assignment]

    def _log_closing(self, reason: str, level: int = logging.WARNING) -> None:
        if not log.isEnabledFor(level):
            return
        line = self._host.close_log.line(self.client_host, reason, self._loop.time())
        if line is not None:
            log.log(level, "closing connection %d from %s: %s", self.connection_id, self.client_host, line)

    def _more_received(self) -> None:
        """Record that the client is active, because a part of a large frame has arrived."""
        self.last_active = self._loop.time()

    def _large_frame_received(self, frame: Readable) -> None:
        """Serve the request in a complete large frame, or queue it behind the requests that wait.

        The transport passes later data to this session again, not to `InPlaceReceiver`.
        """
        self._frames.large = None
        self._transport.set_protocol(self._receiver or self)
        if self._closing:
            return
        self.last_active = self._loop.time()
        if self._backlog or not self._may_begin(frame):
            self._backlog.append(frame)
            self._transport.pause_reading()
        else:
            try:
                self._serve(frame, self)
            except ProtocolError as error:
                self.close(str(error))
            except Exception:
                self.close(_FAILED)
                raise
            if self._busy_polling is not None:
                self._busy_polling.served()

    def _send(self, chunks: Chunks | None = None) -> None:
        """Send `chunks`, or continue with unsent chunks. If a file cannot be read, close the connection."""
        try:
            if chunks is None:
                self._outbox.resume()
            else:
                self._outbox.send(chunks)
        except OSError as error:
            self.close(f"a reply cannot be read: {error}")

    def _unmute(self) -> None:
        self._unmuting = None
        self.last_active = self._loop.time()
        self._continue()

    def _may_begin(self, frame: Readable) -> bool:
        """Whether the request in `frame` can begin now.

        If the request has to wait for an unanswered long poll, make this poll respond at once
        (`LongPoll.give_way`). If requests have begun for too long in this turn of the event loop, `_continue`
        begins this one in a later turn (`Turns`).
        """
        if (
            self._waits_for_turn
            or self._write_paused
            or self._unmuting is not None
            or self._outbox.waiting
            or len(self._unanswered) >= MAX_UNANSWERED
            or self._held > MAX_HELD_BYTES
        ):
            return False
        if self._now() >= self._turns.end and self._turns.must_wait(self._begin_waiting):
            self._waits_for_turn = True
            return False
        if not self._in_turn and not self._waiting:
            return True
        key = int.from_bytes(frame[:2], "big") if frame else NOTHING
        if not self._in_turn and key == self._beside:
            return True
        self._end_long_polls(key)
        is_free = not self._in_turn and not self._waiting
        return is_free and not self._write_paused and not self._outbox.waiting

    def _end_long_polls(self, key: int) -> None:
        """Make unanswered long polls respond at once, except those that are patient with the API `key`."""
        for waiting in tuple(self._unanswered):
            if isinstance(waiting.future, LongPoll):
                waiting.future.give_way(key)

    def _check_stream(self) -> None:
        """Raise ProtocolError if the rest of the received stream is unreadable (`FrameDecoder.refused`)."""
        if self._frames.refused is not None:
            raise ProtocolError(self._frames.refused)

    def _send_in_order(self, waiting: PendingReply, chunks: Chunks | None) -> None:
        waiting.done = True
        waiting.chunks = chunks
        queue = self._unanswered
        if queue[0] is not waiting:
            self._held += sum(map(len, chunks)) if chunks else 0
            return
        queue.popleft()
        if chunks:
            self._send(chunks)
        while queue and queue[0].done:
            held = queue.popleft().chunks
            if held:
                self._held -= sum(map(len, held))
                self._send(held)

    def _begin_waiting(self) -> None:
        """Serve the requests that waited for this turn of the event loop."""
        self._waits_for_turn = False
        self._continue()
        if self._backlog and not self._closing:
            self._transport.pause_reading()

    def _continue(self) -> None:
        """Serve the queued requests, in their order, until one cannot begin now.

        If none is queued any more, start to read again, or close a half-closed connection.
        """
        if not self._backlog or self._closing:
            return
        if len(self._backlog) > 1:
            self._outbox.cork()
        try:
            while self._backlog:
                if self._closing or not self._may_begin(self._backlog[0]):
                    return
                frame = self._backlog.popleft()
                if not frame:
                    self._check_stream()
                self._serve(frame, self)
        except ProtocolError as error:
            self.close(str(error))
        except Exception:
            self.close(_FAILED)
            raise
        finally:
            self._outbox.uncork()
        if not self._closing:
            self._transport.resume_reading()
            self._close_if_answered()

    def _watch_idle(self) -> None:
        limit = self._host.config.connections_max_idle_ms / 1000
        if limit < 0:
            return
        # What waits for an answer of ours is not idle, nor is a muted one; what does not read its answers is.
        if self._unmuting is not None or any(not waiting.done for waiting in self._unanswered):
            self.last_active = self._loop.time()
        left = self.last_active + limit - self._loop.time()
        if left <= 0:
            idle_ms = self._host.config.connections_max_idle_ms
            self.close(f"idle for connections.max.idle.ms={idle_ms}", logging.DEBUG)  # clients connect again
        else:
            self._idle_timer = self._loop.call_later(left, self._watch_idle)
