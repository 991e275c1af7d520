"""The console's HTTP application: the requests that it rejects, and the conditions of a change."""

from __future__ import annotations

import asyncio
import io
import json
from types import SimpleNamespace

import pytest
from aiohttp.test_utils import TestClient, TestServer
from tests.unit.console.clusters import Cluster

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.client.errors import AuthenticationError, UnreachableError
from barnabas.client.schemas.registry import RegistryError
from barnabas.console import app
from barnabas.console.app import Console
from barnabas.console.browser_access import HEADERS, BrowserAccess
from barnabas.console.change import Change
from barnabas.console.filters import FilterError
from barnabas.console.pages.downloads import Download
from barnabas.console.pages.query import QueryError


@pytest.fixture
def view(view_of):
    return view_of(Cluster(topics=3))


@pytest.fixture
def ask(view):
    """``ask(method, path, body)``: send a request as an admitted browser. Return status, headers and body."""

    def ask(method, path, body=None, *, allow_writes=False, admitted=True):
        async def scenario():
            console = Console(view, BrowserAccess(None), allow_writes=allow_writes)
            async with TestClient(TestServer(console.app())) as client:
                origin = str(client.make_url("/")).rstrip("/")
                if admitted:
                    await client.get(f"/{console._browser_access.link}")
                headers = {"Origin": origin, "Content-Type": "application/json"} if body is not None else {}
                content = None if body is None else io.BytesIO(body.encode())
                async with client.request(method, path, data=content, headers=headers) as answer:
                    return answer.status, answer.headers, await answer.read()

        return asyncio.run(scenario())

    return ask


@pytest.fixture
def carried_out(monkeypatch):
    """Collect the changes that an application with a single kind of change has carried out."""
    done = []

    def change(view, registry, wanted):
        if wanted["do"] != "add":
            raise QueryError("do: write add")
        return Change(
            ["users", "add", "ana"], lambda: done.append("ana"), {"users": 1}, given="secret of ana"
        )

    monkeypatch.setattr(app, "change", change)
    return done


def test_a_browser_with_the_cookie_gets_pages_as_json(ask):
    status, headers, body = ask("GET", "/api/topics")
    assert (status, headers["Content-Type"]) == (200, "application/json; charset=utf-8")
    assert [topic["name"] for topic in json.loads(body)["topics"]] == [f"topic-0000{n}" for n in range(3)]
    assert HEADERS.items() <= dict(headers).items()


def test_a_browser_without_the_cookie_gets_nothing(ask):
    for path in ("/", "/api/topics", "/static/app.js", "/api/nowhere"):
        status, headers, body = ask("GET", path, admitted=False)
        assert (status, [*json.loads(body)]) == (401, ["error"]), path
        assert HEADERS.items() <= dict(headers).items()


def test_the_page_itself_and_its_files_are_served_and_no_others(ask):
    status, headers, body = ask("GET", "/")
    assert (status, headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    assert body.startswith(b"<!doctype html>")
    assert ask("GET", "/static/app.js")[1]["Content-Type"] == "text/javascript; charset=utf-8"
    for path in ("/static/app.py", "/static/..%2fapp.py", "/api/nowhere", "/api/download/nowhere"):
        assert ask("GET", path)[0] == 404, path


def test_a_page_of_one_thing_needs_its_name(ask):
    for path, name in (("topic", "name"), ("broker", "id"), ("download/value", "topic"), ("live", "topic")):
        status, _, body = ask("GET", f"/api/{path}")
        assert (status, json.loads(body)) == (400, {"error": f"{name} is missing"})


def test_a_download_is_saved_under_its_name(ask, monkeypatch):
    made = Download("orders-0-5.bin", "application/octet-stream", b"\0\1")
    monkeypatch.setattr(app, "download_value", lambda view, topic, query: made)
    status, headers, body = ask("GET", "/api/download/value?topic=orders")
    assert (status, body) == (200, b"\0\1")
    assert headers["Content-Disposition"] == 'attachment; filename="orders-0-5.bin"'


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (QueryError("x"), 400),
        (FilterError("x"), 400),
        (KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS), 409),
        (AuthenticationError("x"), 502),
        (UnreachableError("x"), 502),
        (RegistryError("x"), 502),
        (BarnabasError("x"), 500),
    ],
    ids=lambda value: type(value).__name__,
)
def test_an_error_has_the_status_of_its_cause(error, status):
    assert app._status(error) == status


def test_an_error_of_the_cluster_has_its_code(ask, monkeypatch):
    def fail(view, query):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "not you")

    monkeypatch.setattr(app, "overview", fail)
    status, _, body = ask("GET", "/api/overview")
    assert (status, json.loads(body)["code"]) == (409, "CLUSTER_AUTHORIZATION_FAILED")
    assert "not you" in json.loads(body)["error"]


def test_a_change_is_shown_and_made_only_when_that_is_asked(ask, carried_out, view, caplog):
    caplog.set_level("INFO")
    status, _, body = ask("POST", "/api/change", json.dumps({"do": "add"}), allow_writes=True)
    told = json.loads(body)
    assert (status, told["done"], told["preview"], carried_out) == (200, False, {"users": 1}, [])
    assert told["command"].startswith("printf '%s\\n' 'secret of ana' | barnabas users add ana")
    for execute in ("true", 1):
        ask("POST", "/api/change", json.dumps({"do": "add", "execute": execute}), allow_writes=True)
    assert carried_out == []
    _, _, body = ask("POST", "/api/change", json.dumps({"do": "add", "execute": True}), allow_writes=True)
    assert json.loads(body)["done"] and carried_out == ["ana"]
    assert "barnabas users add ana" in caplog.text and "secret" not in caplog.text
    ((_, event),) = [(event.at, event.text) for event in view.events.recent()]
    assert "users add ana" in event and "secret" not in event


def test_a_console_that_only_reads_shows_the_command_and_does_nothing(ask, carried_out):
    status, _, body = ask("POST", "/api/change", json.dumps({"do": "add", "execute": True}))
    assert status == 403 and carried_out == []
    assert "barnabas users add ana" in json.loads(body)["command"]
    assert "--allow-writes" in json.loads(body)["error"]


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("no json", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ('["do"]', "is not an object"),
        ('{"do": "\\ud800"}', "has \\ud800, half of a surrogate pair"),
        ('{"do": "fly"}', "do: write add"),
    ],
    ids=["text", "deep", "list", "surrogate", "unknown"],
)
def test_a_change_that_cannot_be_read_is_refused(ask, carried_out, body, complaint):
    status, _, said = ask("POST", "/api/change", body, allow_writes=True)
    assert status == 400 and complaint in json.loads(said)["error"]


def test_a_change_of_more_than_two_megabytes_is_refused(ask, carried_out):
    body = json.dumps({"do": "add", "value": "x" * (2 << 20)})
    assert ask("POST", "/api/change", body, allow_writes=True)[0] == 413


def test_a_stream_shows_that_it_lives_and_ends_with_the_console(view, monkeypatch):
    monkeypatch.setattr(app, "_SIGN_OF_LIFE_S", 0.01)
    stopped = asyncio.Event()

    async def watch(name):
        yield json.dumps({"topic": name})
        await stopped.wait()

    async def scenario():
        console = Console(view, BrowserAccess(None))

        async def stop():
            stopped.set()

        console._live = SimpleNamespace(watch=watch, stop=stop)
        async with TestClient(TestServer(console.app())) as client:
            await client.get(f"/{console._browser_access.link}")
            async with client.get("/api/live", params={"topic": "orders"}) as answer:
                assert answer.headers["Content-Type"] == "text/event-stream"
                assert await answer.content.readline() == b'data: {"topic": "orders"}\n'
                assert await answer.content.readline() == b"\n"
                assert await answer.content.readline() == b": \n"

    asyncio.run(scenario())
    assert stopped.is_set()
