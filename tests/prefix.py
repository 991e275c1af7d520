"""A reverse proxy that serves another server below a path, as in front of a console."""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress

from aiohttp import ClientSession, ClientTimeout, web

_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive"}


class PrefixProxy:
    """A proxy that serves `target` below `prefix`, without the target's knowledge. `asked` has all requested
    paths.
    """

    def __init__(self, target: str, prefix: str) -> None:
        self._target = target.rstrip("/")
        self._prefix = prefix
        self.asked: list[str] = []
        self.url = ""
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)

    def __enter__(self) -> PrefixProxy:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(self, *error: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._pass_on)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=1)
        async with ClientSession(timeout=ClientTimeout(total=None)) as self._session:
            await runner.setup()
            site = web.TCPSite(runner, "127.0.0.1", 0)
            await site.start()
            host, port = runner.addresses[0][:2]
            self.url = f"http://{host}:{port}{self._prefix}/"
            self._ready.set()
            await self._ended.wait()
            await runner.cleanup()

    async def _pass_on(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(request.path)
        if not request.path.startswith(f"{self._prefix}/"):
            raise web.HTTPNotFound
        url = self._target + request.path_qs.removeprefix(self._prefix)
        headers = {name: value for name, value in request.headers.items() if name.lower() not in _HOP}
        async with self._session.request(
            request.method, url, headers=headers, data=await request.read()
        ) as answer:
            given = {n: v for n, v in answer.headers.items() if n.lower() not in _HOP | {"content-encoding"}}
            response = web.StreamResponse(status=answer.status, headers=given)
            await response.prepare(request)
            with suppress(ConnectionError):
                async for part in answer.content.iter_any():
                    await response.write(part)
            return response
