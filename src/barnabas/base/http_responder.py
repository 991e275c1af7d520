"""A small HTTP server on the broker's event loop: GET of a few fixed pages, one request per connection.

It reads no request body and no files. Connections, the bytes of a request and the time for each are bounded.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from collections.abc import AsyncIterator, Callable, Mapping
from typing import TypeAlias

from barnabas.base.environment.network import BindError, Network, ServerSocket
from barnabas.base.errors import ConfigError
from barnabas.base.tasks import start_task, stop_tasks
from barnabas.base.text import logger_of

log = logger_of(__name__)

#: how many connections may be open, and how many of them may be answered with long pages at the same time
MAX_CONNECTIONS = 32
MAX_LONG = 2
#: how many bytes of a request are read
MAX_BYTES = 8192
#: how long a request may take to arrive, and to be answered, in seconds
REQUEST_SECONDS = 5.0
ANSWER_SECONDS = 30.0
#: pieces are joined until they have this many characters, and then sent
_GATHERED = 1 << 16

_REQUEST_LINE = re.compile(r"([A-Z]+) (/[!-~]*) HTTP/1\.([01])")
_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_REASONS = {
    200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed",
    408: "Request Timeout", 431: "Request Header Fields Too Large", 500: "Internal Server Error",
    503: "Service Unavailable",
}  # fmt: skip
TEXT = "text/plain; charset=utf-8"
#: the media type of Prometheus' text format
METRICS = "text/plain; version=0.0.4; charset=utf-8"

#: a status and a short text
Short: TypeAlias = tuple[int, str]
#: answers a path at once, or with a long text in pieces
Handler: TypeAlias = Callable[[], "Short | AsyncIterator[str]"]


class RequestError(Exception):
    """A request that the server refuses, with the status of the response."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


def parse_request(head: bytes, *, only_local: bool) -> tuple[str, str, bool]:
    """Return the method, the path without its query, and whether the client speaks HTTP/1.1.

    Args:
        head: the request up to its empty line.
        only_local: whether the request arrived at an address that only this machine can reach. Then `Host`
            must be ``localhost`` or an IP address: an attacker could point another name to this machine (DNS
            rebinding).

    Raises:
        RequestError: the request is malformed or not allowed.
    """
    line, *fields = head.decode("latin-1").split("\r\n")
    found = _REQUEST_LINE.fullmatch(line)
    if found is None:
        raise RequestError(400, "this is not a request of HTTP/1.1")
    method, target, minor = found[1], found[2], found[3]
    if method not in ("GET", "HEAD"):
        raise RequestError(405, "only GET and HEAD are answered")
    hosts = [value.strip() for name, _, value in (f.partition(":") for f in fields) if name.lower() == "host"]
    if len(hosts) != 1 and (hosts or minor == "1"):
        raise RequestError(400, "a request must have exactly one Host header")
    if hosts:
        host = _HOST.fullmatch(hosts[0])
        if host is None:
            raise RequestError(400, "Host is not a name or an address")
        if only_local and not is_local_name(host[1]):
            raise RequestError(403, "this address is local: Host must be localhost or an IP address")
    return method, target.partition("?")[0], minor == "1"


def is_local_name(host: str) -> bool:
    """Whether `host` is ``localhost`` or an IP address: another site's DNS cannot redirect it."""
    if host.lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True


class Responder:
    """An HTTP server on one address. It answers the paths that `start` receives, and 404 for other paths."""

    def __init__(self, host: str, port: int, network: Network) -> None:
        self._host, self._port = host, port
        self._network = network
        self._socket: ServerSocket | None = None
        self._exchanges: set[_Exchange] = set()
        self.long = asyncio.Semaphore(MAX_LONG)
        self.handlers: Mapping[str, Handler] = {}
        self.only_local = host.lower() == "localhost" or _is_loopback(host)

    @property
    def url(self) -> str:
        """Return the URL of the listening address: ``http://127.0.0.1:9404``."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def bind(self) -> None:
        """Bind the address.

        Raises:
            ConfigError: the address cannot be bound.
        """
        try:
            self._socket = self._network.bind(self._host, self._port)
        except BindError as error:
            raise ConfigError(
                f"barnabas.metrics.listener={self._host}:{self._port} cannot be used: {error}"
            ) from error
        self._port = self._socket.port

    async def start(self, handlers: Mapping[str, Handler]) -> None:
        """Begin to answer requests for the paths in `handlers`. Call `bind` first.

        A GET or HEAD request for a path calls the path's handler, without arguments. The handler returns a
        status and a short text, or an asynchronous iterator over the pieces of a long text.
        """
        self.handlers = handlers
        assert self._socket is not None
        await self._socket.accept(lambda: _Exchange(self), backlog=MAX_CONNECTIONS)

    async def stop(self) -> None:
        """Stop listening and close the connections."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        await asyncio.gather(*(exchange.end() for exchange in list(self._exchanges)))

    def admit(self, exchange: _Exchange) -> bool:
        if len(self._exchanges) >= MAX_CONNECTIONS:
            return False
        self._exchanges.add(exchange)
        return True

    def forget(self, exchange: _Exchange) -> None:
        self._exchanges.discard(exchange)


def parse_listener(text: str) -> tuple[str, int]:
    """Return the host and the port of HOST:PORT. An empty host means ``127.0.0.1``.

    Raises:
        ConfigError: the text is not an address.
    """
    host, colon, port = text.rpartition(":")
    if not colon or not port.isascii() or not port.isdecimal() or int(port) > 65535:
        raise ConfigError(f"barnabas.metrics.listener={text}: write HOST:PORT, for example 127.0.0.1:9404")
    return host.strip("[]") or "127.0.0.1", int(port)


class _Exchange(asyncio.Protocol):
    """One connection: a request and its response."""

    def __init__(self, responder: Responder) -> None:
        self._responder = responder
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport
        self._received = b""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._closed: asyncio.Future[None] = self._loop.create_future()

    # --- asyncio's side ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]
        if not self._responder.admit(self):
            self._transport.abort()
            return
        self._timer = self._loop.call_later(REQUEST_SECONDS, self._refuse, 408, "the request took too long")

    def data_received(self, data: bytes) -> None:
        if self._task is not None:
            return  # a body, or another request: ignored
        self._received += data
        head, end, _ = self._received.partition(b"\r\n\r\n")
        if len(head) > MAX_BYTES:
            self._refuse(431, f"a request can have at most {MAX_BYTES} bytes")
        elif end:
            self._received = b""
            self._set_timer(ANSWER_SECONDS)
            self._task = start_task(self._answer(head), "metrics")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._responder.forget(self)
        if self._task is not None:
            self._task.cancel()
        if not self._closed.done():
            self._closed.set_result(None)

    async def end(self) -> None:
        """Close the connection because the broker stops."""
        self._transport.abort()
        await stop_tasks(self._task)
        await self._closed

    # --- inside ---

    def _set_timer(self, seconds: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._transport.abort)

    def _refuse(self, status: int, text: str) -> None:
        self._send_short(status, text)
        self._finish()

    def _finish(self) -> None:
        self._transport.close()
        self._set_timer(REQUEST_SECONDS)  # for a client that does not read what it is sent

    async def _answer(self, head: bytes) -> None:
        try:
            method, path, is_current = parse_request(head, only_local=self._responder.only_local)
        except RequestError as error:
            self._refuse(error.status, str(error))
            return
        handler = self._responder.handlers.get(path)
        if handler is None:
            known = ", ".join(sorted(self._responder.handlers))
            self._refuse(404, f"this path does not exist; the paths are {known}")
            return
        answer = handler()
        if isinstance(answer, tuple):
            self._send_short(*answer, is_whole=method == "GET")
        elif method == "HEAD":
            self._transport.write(_head(200, METRICS))
        else:
            await self._send_long(answer, is_current)
        self._finish()

    def _send_short(self, status: int, text: str, *, is_whole: bool = True) -> None:
        body = f"{text}\n".encode()
        allow = ["Allow: GET, HEAD"] if status == 405 else []
        head = _head(status, TEXT, f"Content-Length: {len(body)}", *allow)
        self._transport.write(head + body if is_whole else head)

    async def _send_long(self, pieces: AsyncIterator[str], is_chunked: bool) -> None:
        """Send a text in pieces, because it may be large.

        If `is_chunked`, the response uses the chunked transfer encoding (HTTP/1.1). If not, the end of the
        connection marks the end of the text. An error before the first piece makes a response with status
        500. A later error aborts the connection.
        """
        has_begun = False
        try:
            async with self._responder.long:
                async for body in _gathered(pieces):
                    if not has_begun:
                        has_begun = True
                        self._transport.write(
                            _head(200, METRICS, *(["Transfer-Encoding: chunked"] if is_chunked else []))
                        )
                    self._transport.write(b"%x\r\n%b\r\n" % (len(body), body) if is_chunked else body)
                    await self._writable.wait()
            if not has_begun:
                self._transport.write(_head(200, METRICS, "Content-Length: 0"))
            elif is_chunked:
                self._transport.write(b"0\r\n\r\n")
        except Exception as error:
            log.error("cannot write the metrics: %s: %s", type(error).__name__, error, exc_info=error)
            if has_begun:
                self._transport.abort()
            else:
                self._send_short(500, "cannot write the metrics; the log says why")


def _head(status: int, media_type: str, *fields: str) -> bytes:
    lines = (
        f"HTTP/1.1 {status} {_REASONS[status]}",
        f"Content-Type: {media_type}",
        "X-Content-Type-Options: nosniff",
        "Cache-Control: no-store",
        "Connection: close",
        *fields,
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode("ascii")


async def _gathered(pieces: AsyncIterator[str]) -> AsyncIterator[bytes]:
    waiting: list[str] = []
    size = 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= _GATHERED:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting).encode()


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
