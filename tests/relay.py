"""A TCP relay on the loopback interface, which a test can cut without root permissions."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class Relay:
    """A relay from its own port to `target`: a port of 127.0.0.1, or the path of a Unix socket."""

    def __init__(self, target: int | str) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server
        self._is_cut = False
        #: whether what the target says is swallowed, while it still hears everything
        self.mute = False
        #: how many connections were made through it
        self.connections = 0

    @property
    def address(self) -> str:
        port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)

    async def stop(self) -> None:
        self._server.close()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Break all connections, and each new one at once."""
        self._is_cut = True
        for writer in self._writers:
            writer.transport.abort()

    def heal(self) -> None:
        """Let connections through again, with all their data."""
        self._is_cut = self.mute = False

    async def _connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if isinstance(self._target, str):
            return await asyncio.open_unix_connection(self._target)
        return await asyncio.open_connection("127.0.0.1", self._target)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._tasks.add(asyncio.current_task())  # type: ignore[arg-type]
        self._writers.add(writer)
        with contextlib.suppress(OSError):
            if not self._is_cut:
                self.connections += 1
                far_reader, far_writer = await self._connect()
                self._writers.add(far_writer)
                await asyncio.gather(
                    self._pass(reader, far_writer, is_answer=False),
                    self._pass(far_reader, writer, is_answer=True),
                )
        writer.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, is_answer: bool
    ) -> None:
        try:
            while data := await reader.read(65536):
                if not (is_answer and self.mute):
                    writer.write(data)
                    await writer.drain()
        finally:
            writer.transport.abort()


@asynccontextmanager
async def relay(target: int | str) -> AsyncIterator[Relay]:
    """Run a relay to `target` while the block lasts."""
    made = Relay(target)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()
