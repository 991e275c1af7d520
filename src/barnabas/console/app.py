"""The HTTP application of the console: pages, their JSON, a stream of events for each tab, and changes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar

from aiohttp import web

from barnabas.base.errors import BarnabasError, KafkaError
from barnabas.base.text import logger_of, shown
from barnabas.client.errors import AuthenticationError, ClientError, error_text
from barnabas.client.schemas.registered import SchemaError, SchemaNameError
from barnabas.client.schemas.registry import RegistryError, RegistryRefused
from barnabas.client.schemas.unfit import UnfitError
from barnabas.console.browser_access import HEADERS, BrowserAccess
from barnabas.console.changes import change
from barnabas.console.filters import FilterError
from barnabas.console.live import Live
from barnabas.console.pages.access import access
from barnabas.console.pages.brokers import broker, brokers
from barnabas.console.pages.clients import clients
from barnabas.console.pages.downloads import Download, download_records, download_value
from barnabas.console.pages.groups import group, groups
from barnabas.console.pages.overview import overview
from barnabas.console.pages.pipelines import Pipelines
from barnabas.console.pages.query import Query, QueryError
from barnabas.console.pages.records import record, records
from barnabas.console.pages.schemas import schema, schemas
from barnabas.console.pages.topic import topic
from barnabas.console.pages.topics import topics
from barnabas.console.pages.transactions import transactions
from barnabas.console.schemas import Schemas
from barnabas.console.view import ClusterView

log = logger_of(__name__)
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

#: the most requests of browsers that wait for a slow cluster at once
_THREADS = 8
_MAX_CHANGE = 2 << 20
#: seconds between two keep-alives in a stream without events
_SIGN_OF_LIFE_S = 15.0
_TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class Console:
    """The console of one cluster: handlers of HTTP requests.

    Args:
        registry: the schema registry; None if there is none.
        allow_writes: whether pages may change the cluster.
        metrics: URLs of the brokers' pages of metrics.
    """

    def __init__(
        self,
        view: ClusterView,
        browser_access: BrowserAccess,
        registry: Schemas | None = None,
        *,
        allow_writes: bool = False,
        metrics: Sequence[str] = (),
    ) -> None:
        self._view = view
        self._browser_access = browser_access
        self._registry = registry
        self._allow_writes = allow_writes
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="console")
        self._live = Live(view, self._run)
        self._pages: dict[str, Callable[[Query], Any]] = {
            "overview": partial(overview, view),
            "topics": partial(topics, view),
            "topic": self._named(topic, "name"),
            "records": self._named(records, "topic"),
            "record": self._named(record, "topic"),
            "groups": partial(groups, view),
            "group": self._named(group, "name"),
            "brokers": partial(brokers, view),
            "broker": self._named(broker, "id"),
            "transactions": partial(transactions, view),
            "schemas": partial(schemas, registry),
            "schema": partial(schema, registry),
            "pipelines": Pipelines(view).page,
            "access": partial(access, view),
            "clients": partial(clients, view, metrics),
        }

        self._downloads: dict[str, Callable[[Query], Download]] = {
            "value": self._named(download_value, "topic"),
            "records": self._named(download_records, "topic"),
        }

    def app(self) -> web.Application:
        """Return the aiohttp application."""
        app = web.Application(middlewares=[self._guarded], client_max_size=_MAX_CHANGE)
        app.router.add_get("/", partial(self._static, "index.html"))
        app.router.add_get("/login", self._login)
        app.router.add_get("/static/{name}", self._asset)
        app.router.add_get("/api/live", self._stream)
        app.router.add_get("/api/console", self._about)
        app.router.add_get("/api/{page}", self._page)
        app.router.add_get("/api/download/{what}", self._download)
        app.router.add_post("/api/change", self._change)
        app.on_shutdown.append(self._end_streams)
        app.on_cleanup.append(self._close)
        return app

    async def _run(self, function: Callable[..., T], *args: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._pool, function, *args)

    def _named(
        self, page: Callable[[ClusterView, str, Query], Any], parameter: str
    ) -> Callable[[Query], Any]:
        def answer(query: Query) -> Any:
            if not query.get(parameter):
                raise QueryError(f"{parameter} is missing")
            return page(self._view, query[parameter], query)

        return answer

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        refusal = self._browser_access.check(request)
        if refusal is not None:
            response: web.StreamResponse = refusal
        else:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = web.json_response({"error": error.reason}, status=error.status)
            except BarnabasError as error:
                response = web.json_response(_error_answer(error), status=_status(error))
        if not response.prepared:
            response.headers.update(HEADERS)
        return response

    async def _login(self, request: web.Request) -> web.StreamResponse:
        if not self._browser_access.use_token(request.query.get("token", "")):
            return web.json_response(
                {"error": "this link has been used, or is not the console's: start it again for a new one"},
                status=403,
            )
        # A redirect from another site's page would not carry a strict cookie: the page goes on by itself.
        response = web.Response(
            text='<!doctype html><meta http-equiv="refresh" content="0; url=./">', content_type="text/html"
        )
        self._browser_access.let_in(response, request.path.removesuffix("login"))
        return response

    async def _about(self, request: web.Request) -> web.StreamResponse:
        return web.json_response(
            {
                "servers": str(self._view.servers),
                "allow_writes": self._allow_writes,
                "registry": self._registry is not None,
                "hide_values": self._view.privacy.hide_values,
            }
        )

    async def _page(self, request: web.Request) -> web.StreamResponse:
        page = self._pages.get(request.match_info["page"])
        if page is None:
            raise web.HTTPNotFound
        return web.json_response(await self._run(page, dict(request.query)))

    async def _download(self, request: web.Request) -> web.StreamResponse:
        make = self._downloads.get(request.match_info["what"])
        if make is None:
            raise web.HTTPNotFound
        made = await self._run(make, dict(request.query))
        as_file = {"Content-Disposition": f'attachment; filename="{made.name}"'}
        return web.Response(body=made.content, content_type=made.type, headers=as_file)

    async def _stream(self, request: web.Request) -> web.StreamResponse:
        name = request.query.get("topic", "")
        if not name:
            raise QueryError("topic is missing")
        response = web.StreamResponse(headers={**HEADERS, "Content-Type": "text/event-stream"})
        events = aiter(self._live.watch(name))
        await response.prepare(request)
        try:
            while True:
                coming = asyncio.ensure_future(anext(events))
                try:
                    while not (await asyncio.wait([coming], timeout=_SIGN_OF_LIFE_S))[0]:
                        await response.write(b": \n\n")
                finally:
                    if not coming.done():
                        coming.cancel()
                        await asyncio.wait([coming])  # else the generator still runs when it is closed
                await response.write(f"data: {coming.result()}\n\n".encode())
        except ConnectionError:  # the browser has gone
            return response
        finally:
            await events.aclose()  # type: ignore[attr-defined]

    async def _change(self, request: web.Request) -> web.StreamResponse:
        try:
            wanted = await request.json()
        except (ValueError, RecursionError):
            raise QueryError("the body is not JSON") from None
        if not isinstance(wanted, dict):
            raise QueryError("the body is not an object")
        try:
            json.dumps(wanted, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            lone = f"\\u{ord(error.object[error.start]):04x}"
            raise QueryError(f"the body has {lone}, half of a surrogate pair") from None
        made = await self._run(change, self._view, self._registry, wanted)
        command = made.command(self._view.servers)
        answer = {"command": command, "preview": made.preview, "done": False}
        if wanted.get("execute") is not True:
            return web.json_response(answer)
        if not self._allow_writes:
            return web.json_response(
                {**answer, "error": "this console only reads: start it with --allow-writes"}, status=403
            )
        logged = shown(made.command(self._view.servers, with_input=False))
        log.info("the console made a change: %s", logged)
        result = await self._run(made.carry_out)
        self._view.events.add(self._view.clock.now_ms(), logged)
        return web.json_response({**answer, "done": True, "result": result})

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        return await self._static(request.match_info["name"], request)

    async def _static(self, name: str, request: web.Request) -> web.StreamResponse:
        content = _assets().get(name)
        if content is None:
            raise web.HTTPNotFound
        return web.Response(body=content, content_type=_TYPES["." + name.rpartition(".")[2]], charset="utf-8")

    async def _end_streams(self, app: web.Application) -> None:
        await self._live.stop()

    async def _close(self, app: web.Application) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._view.close()


def _error_answer(error: BarnabasError) -> dict[str, Any]:
    code = {"code": error.code.name} if isinstance(error, KafkaError) else {}
    return {"error": error_text(error), **code}


def _status(error: BarnabasError) -> int:
    if isinstance(error, QueryError | FilterError | SchemaNameError | SchemaError | UnfitError):
        return 400
    if isinstance(error, RegistryRefused):
        return 404 if error.is_missing else 409
    if isinstance(error, AuthenticationError):
        return 502
    if isinstance(error, KafkaError):
        return 409
    return 502 if isinstance(error, ClientError | RegistryError) else 500


_ASSETS: dict[str, bytes] = {}


def _assets() -> dict[str, bytes]:
    """Return all files of the pages, by name."""
    if not _ASSETS:
        for each in files("barnabas.console").joinpath("static").iterdir():
            if "." + each.name.rpartition(".")[2] in _TYPES:
                _ASSETS[each.name] = each.read_bytes()
    return _ASSETS
