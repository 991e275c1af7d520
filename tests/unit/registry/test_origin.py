"""Pages of other sites in a browser on this machine cannot read or change anything in a registry."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any

import pytest
from aiohttp.test_utils import TestClient, TestServer

from barnabas.registry.rest.app import build
from barnabas.registry.rest.origin import own_hosts
from barnabas.registry.state import State

NAMES = ("127.0.0.1:8081", "localhost:8081")


class Log:
    def __init__(self) -> None:
        self.asked = 0

    async def write(self, decide: Any) -> Any:
        self.asked += 1
        return {}


def ask(
    method: str, path: str, headers: Mapping[str, str], hosts: Collection[str] | None, body: bytes = b""
) -> tuple[int, Any, int]:
    """Send a request. Return the status, the body, and the number of changes in the log."""

    async def scenario() -> tuple[int, Any, int]:
        log = Log()
        app = build(State(), log, "cluster", hosts=own_hosts(hosts, ()))  # type: ignore[arg-type]
        async with TestClient(TestServer(app)) as client:
            skipped = ["Content-Type"] if "Content-Type" not in headers else []
            async with client.request(
                method, path, data=body or None, headers=headers, skip_auto_headers=skipped
            ) as answer:
                return answer.status, json.loads(await answer.text()), log.asked

    return asyncio.run(scenario())


@pytest.mark.parametrize("host", NAMES)
def test_a_registry_answers_by_its_own_names(host: str) -> None:
    assert ask("GET", "/subjects", {"Host": host}, NAMES) == (200, [], 0)
    assert ask("GET", "/subjects", {"Host": host.upper()}, NAMES) == (200, [], 0)


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8081", "127.0.0.1:8082", "127.0.0.1", ""])
@pytest.mark.parametrize("path", ["/", "/subjects", "/schemas/ids/1", "/config", "/nowhere"])
def test_a_registry_answers_by_no_other_name(host: str, path: str) -> None:
    status, body, _ = ask("GET", path, {"Host": host}, NAMES)
    assert (status, body["error_code"]) == (421, 421)
    assert "--allow-host" in body["message"]


@pytest.mark.parametrize(
    ("allowed", "host", "expected"),
    [
        ("Schemas.example", "schemas.example:8081", 200),
        ("schemas.example", "schemas.example", 200),
        ("schemas.example:81", "schemas.EXAMPLE:81", 200),
        ("schemas.example:81", "schemas.example:82", 421),
        ("schemas.example", "evil.example", 421),
    ],
)
@pytest.mark.parametrize("known", [NAMES, None])
def test_a_name_that_is_allowed_is_answered(
    known: Collection[str] | None, allowed: str, host: str, expected: int
) -> None:
    assert ask("GET", "/subjects", {"Host": host}, own_hosts(known, [allowed]))[0] == expected


def test_where_other_machines_reach_a_registry_any_name_is_right() -> None:
    assert own_hosts(None, ()) is None
    assert ask("GET", "/subjects", {"Host": "anything.example"}, None) == (200, [], 0)


SCHEMA = json.dumps({"schema": '"string"'}).encode()


@pytest.mark.parametrize(
    "origin", ["http://evil.example", "http://localhost:9999", "null", "https://evil.example:8081"]
)
@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/subjects/orders-value/versions", SCHEMA),
        ("PUT", "/config", b'{"compatibility":"NONE"}'),
        ("PUT", "/mode/x", b'{"mode":"READONLY"}'),
        ("DELETE", "/subjects/orders-value", b""),
        ("POST", "/compatibility/subjects/a/versions", SCHEMA),
    ],
)
def test_a_page_of_another_site_changes_nothing(origin: str, method: str, path: str, body: bytes) -> None:
    """A browser sends a POST without a content type without asking the registry."""
    headers = {"Host": NAMES[0], "Origin": origin}
    for hosts in (NAMES, None):
        status, answer, asked = ask(method, path, headers, hosts, body)
        assert (status, answer["error_code"], asked) == (403, 403, 0)


def test_a_page_of_the_registrys_own_address_changes_what_it_likes() -> None:
    for origin in NAMES:
        headers = {"Host": NAMES[0], "Origin": f"http://{origin}", "Content-Type": "application/json"}
        status, _, asked = ask("PUT", "/config", headers, NAMES, b'{"compatibility":"NONE"}')
        assert (status, asked) == (200, 1)
