"""A proxy in front of a broker without security, with TLS, SASL, or both."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient

from barnabas.base.errors import ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.framing import encode_response, parse_request, parse_response
from barnabas.kafka.protocol.messages.api_versions import ApiVersion
from barnabas.kafka.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.spark import clients
from barnabas.spark.fetch_settings import FetchSettings
from barnabas.spark.topics import TopicLookup

_SASL_APIS = [ApiVersion(api_key=17, max_version=1), ApiVersion(api_key=36, max_version=2)]

#: One side of an exchange: takes a message, gives the answer, and says whether the client is known.
Step = Callable[[bytes], tuple[bytes, bool]]


class Refused(Exception):
    """The client's login failed."""


class SecureProxy:
    """Listens on a free port until it is closed. `start` sets the broker behind it."""

    def __init__(
        self, tls: ssl.SSLContext | None = None, mechanism: str = "", begin: Callable[[], Step] | None = None
    ) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._tls = tls
        self._mechanism = mechanism
        self._begin = begin
        self._broker = ("", 0)
        self._open: list[asyncio.StreamWriter] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def start(self, host: str, port: int) -> None:
        self._broker = (host, port)
        serve = asyncio.start_server(self._serve, sock=self._listener, ssl=self._tls)
        asyncio.run_coroutine_threadsafe(serve, self._loop).result(60)

    def close(self) -> None:
        async def stop() -> None:
            others = asyncio.all_tasks() - {asyncio.current_task()}
            for task in others:
                task.cancel()
            await asyncio.gather(*others, return_exceptions=True)
            for writer in self._open:
                writer.transport.abort()
            await asyncio.sleep(0)  # in which their sockets are closed

        asyncio.run_coroutine_threadsafe(stop(), self._loop).result(60)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(60)
        self._listener.close()
        self._loop.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.append(writer)
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, Refused):
            to_broker = await asyncio.open_connection(*self._broker)
            self._open.append(to_broker[1])
            try:
                if self._begin is not None:
                    await self._authenticate(reader, writer, *to_broker)
                await asyncio.gather(_pipe(reader, to_broker[1]), _pipe(to_broker[0], writer))
            finally:
                _close(to_broker[1])
                _close(writer)

    async def _authenticate(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        from_broker: asyncio.StreamReader,
        to_broker: asyncio.StreamWriter,
    ) -> None:
        assert self._begin is not None
        step = self._begin()
        done = False
        while not done:
            frame = await _frame(reader)
            header, request = parse_request(frame[4:])
            answer: Any
            if isinstance(request, SaslHandshakeRequest):
                known = request.mechanism == self._mechanism
                code = ErrorCode.NONE if known else ErrorCode.UNSUPPORTED_SASL_MECHANISM
                answer = SaslHandshakeResponse(error_code=code, mechanisms=[self._mechanism])
            elif isinstance(request, SaslAuthenticateRequest):
                try:
                    said, done = step(bytes(request.auth_bytes))
                    answer = SaslAuthenticateResponse(auth_bytes=said)
                except Refused as error:
                    answer = SaslAuthenticateResponse(
                        error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=str(error)
                    )
            else:  # ApiVersions, which is allowed before
                to_broker.write(frame)
                answer = parse_response(header, (await _frame(from_broker))[4:])
                answer.api_keys += _SASL_APIS
            writer.writelines(map(bytes, encode_response(header, answer)))


async def _frame(reader: asyncio.StreamReader) -> bytes:
    size = await reader.readexactly(4)
    return size + await reader.readexactly(int.from_bytes(size, "big"))


async def _pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65_536):
        writer.write(data)
        await writer.drain()
    _close(writer)


def _close(writer: asyncio.StreamWriter) -> None:
    """Close it once: Python 3.11.2 cannot abort a TLS transport that was closed twice."""
    if not writer.is_closing():
        writer.close()


@contextlib.contextmanager
def _clients_closed() -> Iterator[None]:
    kept: dict[Any, Any] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clients, "_kept", kept)
        try:
            yield
        finally:
            for client in kept.values():
                if isinstance(client, TopicLookup):
                    client.brokers.close()
                elif not isinstance(client, AdminClient | FetchSettings):  # which have nothing to close
                    client.close()


@contextlib.contextmanager
def secured(
    folder: Path,
    tls: ssl.SSLContext | None = None,
    mechanism: str = "",
    begin: Callable[[], Step] | None = None,
) -> Iterator[SecureProxy]:
    """Run a broker behind a proxy. Clients get only the proxy's address. The broker's data is in `folder`.

    At the end, it closes the clients that are kept for later tasks.
    """
    proxy = SecureProxy(tls, mechanism, begin)
    settings = {
        "listeners": "PLAINTEXT://127.0.0.1:0",
        "advertised.listeners": f"PLAINTEXT://{proxy.address}",
        "log.dirs": str(folder),
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    try:
        broker = BrokerServer(BrokerConfig.from_text(settings)).start()
        try:
            (behind,) = broker.bound
            proxy.start(behind.host, behind.port)
            with _clients_closed():
                yield proxy
        finally:
            broker.stop()
    finally:
        proxy.close()
