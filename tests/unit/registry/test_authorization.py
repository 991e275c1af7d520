"""Every URL of a registry checks the canonical subject and id, however a client writes them."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.effort import examples
from yarl import URL

from barnabas.kafka.security.acls import (
    Access,
    AclBinding,
    AclEntry,
    Acls,
    Authorizer,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
    SubjectRules,
)
from barnabas.kafka.security.principal import Principal
from barnabas.registry.computed import NotComputed
from barnabas.registry.decision import Decision
from barnabas.registry.registration import register
from barnabas.registry.rest.app import build
from barnabas.registry.schema import Schema
from barnabas.registry.state import State
from barnabas.registry.workers import WORKERS

ORDERS, SECRETS, STAGED = (
    json.dumps({"type": "record", "name": name, "fields": [{"name": "id", "type": "long"}]})
    for name in ("Order", "Secret", "Staged")
)
#: ids 1 and 2 in the default context, and 1 in the context .staging
SCHEMAS = {"orders-value": ORDERS, "secrets-value": SECRETS, ":.staging:orders-value": STAGED}

#: what each URL requires: an operation on the subject's topic, "visible" (DESCRIBE on one of the subjects
#: that the schema has), "filtered" (a list of what the user may see), the cluster's ALTER_CONFIGS, or nothing
NEEDS = {
    "GET /": None,
    "GET /v1/metadata/id": None,
    "GET /v1/metadata/version": None,
    "GET /schemas/types": None,
    "GET /config": None,
    "GET /mode": None,
    "GET /contexts": "filtered",
    "GET /schemas": "filtered",
    "GET /subjects": "filtered",
    "PUT /config": "cluster",
    "DELETE /config": "cluster",
    "PUT /mode": "cluster",
    "DELETE /mode": "cluster",
    "GET /schemas/ids/{id}": "visible",
    "GET /schemas/ids/{id}/schema": "visible",
    "GET /schemas/ids/{id}/subjects": "visible",
    "GET /schemas/ids/{id}/versions": "visible",
    "GET /schemas/guids/{guid}": "visible",
    "POST /subjects/{subject}": "DESCRIBE",
    "DELETE /subjects/{subject}": "DELETE",
    "GET /subjects/{subject}/versions": "DESCRIBE",
    "POST /subjects/{subject}/versions": "WRITE",
    "GET /subjects/{subject}/metadata": "DESCRIBE",
    "GET /subjects/{subject}/versions/{version}": "DESCRIBE",
    "GET /subjects/{subject}/versions/{version}/schema": "DESCRIBE",
    "GET /subjects/{subject}/versions/{version}/referencedby": "DESCRIBE",
    "DELETE /subjects/{subject}/versions/{version}": "DELETE",
    "GET /config/{subject}": "DESCRIBE",
    "PUT /config/{subject}": "ALTER_CONFIGS",
    "DELETE /config/{subject}": "ALTER_CONFIGS",
    "GET /mode/{subject}": "DESCRIBE",
    "PUT /mode/{subject}": "ALTER_CONFIGS",
    "DELETE /mode/{subject}": "ALTER_CONFIGS",
    "POST /compatibility/subjects/{subject}/versions/{version}": "DESCRIBE",
    "POST /compatibility/subjects/{subject}/versions": "DESCRIBE",
}
BY_SUBJECT = sorted(route for route in NEEDS if "{subject}" in route)
BY_ID = sorted(route for route in NEEDS if "{id}" in route)
OPERATIONS = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER_CONFIGS)


class Log:
    """A log that executes each decision at once."""

    def __init__(self, state: State) -> None:
        self._state = state
        self.written: list[Any] = []

    async def write(self, decide: Callable[[], Decision[Any]]) -> Any:
        decision = decide()
        for record in decision.records:
            self.written.append(record)
            self._state.replay(*record.encode())
        return decision.answer


class Users:
    """Users with permissions on topics. A topic that ends in * is a prefix. admin has all permissions."""

    def __init__(self, allowed: dict[str, list[str]], operations: Sequence[Operation] = OPERATIONS) -> None:
        acls = Acls.of(
            [
                AclBinding(_pattern(topic), AclEntry(f"User:{user}", Permission.ALLOW, operation, "*"))
                for user, topics in allowed.items()
                for topic in topics
                for operation in operations
            ]
        )
        self._authorizer = Authorizer(lambda: acls, SubjectRules(frozenset({"User:admin"})))

    async def access(self, authorization: str | None, host: str) -> Access:
        return self._authorizer.access(Principal(authorization or ""), host)


def _pattern(topic: str) -> ResourcePattern:
    kind = PatternType.PREFIXED if topic.endswith("*") else PatternType.LITERAL
    return ResourcePattern(ResourceType.TOPIC, topic.removesuffix("*"), kind)


#: users of most tests; spellings of subjects are no names of topics
USERS = {
    "owner": ["orders", ":.staging:orders"],
    "decoy": [":.:*", "%*", "orders-value", ":.:orders", ":.staging:orders-value", "other"],
}


class Registry:
    """A registry with two subjects, and another one in a context, with requests of `Users`."""

    def __init__(self, client: TestClient[Any, Any], state: State, log: Log) -> None:
        self.state = state
        self.written = log.written
        self._client = client

    async def ask(
        self, user: str, route: str, body: dict[str, Any] | None = None, query: str = "", **names: str
    ) -> tuple[int, Any]:
        """Request a route of the table, with names that are not encoded. Return the status and the body."""
        method, template = route.split(" ")
        for name, value in {"version": "1", **names}.items():
            template = template.replace(f"{{{name}}}", value)
        assert "{" not in template, f"a name of {route} is not tested: add its spellings to this file"
        if body is None and method in ("PUT", "POST"):
            put = {"compatibility": "NONE"} if "config" in template else {"mode": "READONLY"}
            body = put if method == "PUT" else {"schema": ORDERS}
        url = URL(f"{self._client.make_url('/').origin()}{template}{query}", encoded=True)
        headers = {"Authorization": user}
        async with self._client.session.request(method, url, json=body, headers=headers) as answer:
            text = await answer.text()
            try:
                return answer.status, json.loads(text)
            except ValueError:
                return answer.status, text


def run(
    use: Callable[[Registry], Awaitable[None]],
    users: Users | None = None,
    more: Sequence[web.AbstractRouteDef] = (),
) -> None:
    """Run `use` with a new registry."""

    async def running() -> None:
        state = State()
        log = Log(state)
        for subject, text in SCHEMAS.items():
            await log.write(partial(_registered, state, subject, text))
        log.written.clear()
        app = build(state, log, "cluster", users or Users(USERS))  # type: ignore[arg-type]
        app.add_routes(more)
        async with TestClient(TestServer(app)) as client:
            await use(Registry(client, state, log))

    asyncio.run(running())


def _registered(state: State, subject: str, text: str) -> Decision[Any]:
    while True:
        try:
            return register(state, subject, {"schema": text})
        except NotComputed as missing:
            missing.compute(time.monotonic() + 60)


@pytest.fixture(scope="module", autouse=True)
def workers() -> Iterator[None]:
    with WORKERS.in_use():
        yield


def test_the_table_of_permissions_names_every_url() -> None:
    app = build(State(), Log(State()), "cluster")  # type: ignore[arg-type]
    found = {
        f"{route.method} {route.resource.canonical}"
        for route in app.router.routes()
        if route.resource is not None and route.method != "HEAD"
    }
    assert found == set(NEEDS)
    assert {route.method for route in app.router.routes()} <= {"GET", "HEAD", "PUT", "POST", "DELETE"}


@pytest.mark.parametrize("route", BY_SUBJECT)
def test_each_url_of_a_subject_requires_its_operation_and_no_other(route: str) -> None:
    needed = Operation[NEEDS[route] or ""]
    for allowed in OPERATIONS:
        implied = needed is allowed or (
            needed is Operation.DESCRIBE and allowed is not Operation.ALTER_CONFIGS
        )

        async def use(registry: Registry, implied: bool = implied) -> None:
            status, _ = await registry.ask("eve", route, subject="orders-value")
            assert (status == 403) is not implied

        run(use, Users({"eve": ["orders"]}, [allowed]))


def _encoded(name: str, which: list[bool], upper: bool) -> str:
    parts = []
    for character, encode in zip(name, which, strict=True):
        digits = f"{ord(character):02x}"
        parts.append(f"%{digits.upper() if upper else digits}" if encode else character)
    return "".join(parts)


@st.composite
def spellings(draw: st.DrawFn) -> tuple[str, str]:
    """Generate a canonical subject and another spelling of it."""
    subject = draw(st.sampled_from(["orders-value", ":.staging:orders-value"]))
    name = subject
    if not subject.startswith(":") and draw(st.booleans()):
        name = ":.:" + subject
    which = draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name)))
    return subject, _encoded(name, which, draw(st.booleans()))


@pytest.mark.parametrize("route", BY_SUBJECT)
@settings(max_examples=examples(12, 200), deadline=None)
@given(spelling=spellings())
def test_every_spelling_of_a_subject_is_guarded_as_the_canonical_one(
    route: str, spelling: tuple[str, str]
) -> None:
    subject, spelled = spelling

    async def use(registry: Registry) -> None:
        for user in ("nobody", "decoy"):
            denied = await registry.ask(user, route, subject=subject)
            assert denied[0] == 403
            assert await registry.ask(user, route, subject=spelled) == denied
            assert registry.written == []
        found.append(await registry.ask("owner", route, subject=spelled))
        found.append(list(registry.written))

    async def canonically(registry: Registry) -> None:
        found.append(await registry.ask("owner", route, subject=subject))
        found.append(list(registry.written))

    found: list[Any] = []
    run(use)
    run(canonically)
    assert found[:2] == found[2:]
    assert found[0][0] != 403


@pytest.mark.parametrize("route", BY_ID)
@pytest.mark.parametrize(
    "spelled", ["1", "01", "0000000001", "00000000001", "0" * 17 + "1", "0" * 60 + "1", "%31"]
)
def test_every_spelling_of_an_id_is_guarded_as_the_canonical_one(route: str, spelled: str) -> None:
    async def use(registry: Registry) -> None:
        for user in ("nobody", "decoy"):
            missing = await registry.ask(user, route, id="77")
            assert missing[0] == 404
            hidden = await registry.ask(user, route, id=spelled)
            assert (hidden[0], hidden[1]["error_code"]) == (404, missing[1]["error_code"])
            assert hidden[1]["message"] == missing[1]["message"].replace("77", "1")
        assert await registry.ask("owner", route, id=spelled) == await registry.ask("owner", route, id="1")
        assert (await registry.ask("owner", route, id=spelled))[0] == 200
        assert (await registry.ask("owner", route, id="2"))[0] == 404

    run(use)


@pytest.mark.parametrize(
    "query", ["?subject=:.:orders-value", "?subject=%3A.%3A", "?subject=other", "?subject=:.staging:x"]
)
def test_an_id_that_is_hidden_stays_hidden_in_every_context(query: str) -> None:
    async def use(registry: Registry) -> None:
        for route in BY_ID:
            assert (await registry.ask("nobody", route, id="1", query=query))[0] == 404
            assert (await registry.ask("owner", route, id="1", query=query))[0] == 200

    run(use)


def test_every_spelling_of_a_guid_is_guarded() -> None:
    async def use(registry: Registry) -> None:
        route = "GET /schemas/guids/{guid}"
        hidden, seen = (
            Schema.from_json(registry.state.version(s, 1).schema.to_json()).guid  # type: ignore[union-attr]
            for s in ("secrets-value", "orders-value")
        )
        for spell in (
            str,
            str.upper,
            lambda g: g.replace("-", ""),
            lambda g: f"urn:uuid:{g}",
        ):
            for user in ("nobody", "decoy", "owner"):
                assert (await registry.ask(user, route, guid=spell(hidden)))[0] == 404
            assert (await registry.ask("owner", route, guid=spell(seen)))[0] == 200

    run(use)


def test_lists_name_only_subjects_and_contexts_that_the_user_may_see() -> None:
    async def use(registry: Registry) -> None:
        for query in ("", "?subjectPrefix=:*:"):
            both = [":.staging:orders-value", "orders-value"]
            assert await registry.ask("owner", "GET /subjects", query=query) == (200, both)
            assert await registry.ask("nobody", "GET /subjects", query=query) == (200, [])
            _, schemas = await registry.ask("owner", "GET /schemas", query=query)
            assert [each["subject"] for each in schemas] == (both if query else both[1:])
            assert await registry.ask("nobody", "GET /schemas", query=query) == (200, [])
        for prefix in ("orders", ":.:orders", "%3A.%3Aorders", ":.:"):
            query = f"?subjectPrefix={prefix}"
            assert await registry.ask("owner", "GET /subjects", query=query) == (200, ["orders-value"])
        assert await registry.ask("owner", "GET /contexts") == (200, [".", ".staging"])
        assert await registry.ask("nobody", "GET /contexts") == (200, ["."])
        assert await registry.ask("decoy", "GET /contexts") == (200, ["."])

    run(use)


@pytest.mark.parametrize("name", ["config", "mode"])
def test_a_whole_contexts_settings_have_a_spelling_of_their_own(name: str) -> None:
    async def use(registry: Registry) -> None:
        route = f"PUT /{name}/{{subject}}"
        for spelled in (":.staging:", "%3A.staging%3A"):
            assert (await registry.ask("owner", route, subject=spelled))[0] == 403
        assert (await registry.ask("admin", route, subject=":.staging:"))[0] == 200
        assert registry.written[-1].key.subject == ":.staging:"
        # a subject that ends in a colon is no context
        assert (await registry.ask("admin", route, subject=":.:orders:"))[0] == 200
        assert registry.written[-1].key.subject == "orders:"
        assert (await registry.ask("admin", route, subject=":.:"))[1]["error_code"] == 42208

    run(use)


@pytest.mark.parametrize("route", sorted(route for route in BY_SUBJECT if route.startswith("POST")))
def test_a_reference_is_guarded_as_the_subject_that_it_means_there(route: str) -> None:
    """In a context, a name without a context means a subject of this context."""

    async def use(registry: Registry) -> None:
        async def refers(user: str, subject: str, to: str) -> tuple[int, str]:
            text = json.dumps({"type": "record", "name": "M", "fields": []})
            body = {"schema": text, "references": [{"name": "Order", "subject": to, "version": 1}]}
            status, answer = await registry.ask(user, route, body, subject=subject)
            return status, answer.get("message", "")

        for denied in ("orders-value", ":.staging:orders-value"):
            status, message = await refers("eve", ":.staging:mine", denied)
            assert status == 403 and "':.staging:orders-value'" in message
        for denied in ("secrets-value", ":.:secrets-value"):
            status, message = await refers("eve", "mine", denied)
            assert status == 403 and "'secrets-value'" in message
        for subject, allowed in (
            ("mine", "orders-value"),
            ("mine", ":.:orders-value"),
            (":.staging:mine", ":.:orders-value"),
        ):
            status, message = await refers("eve", subject, allowed)
            # the handler finds what the guard has let through: both read the name in the same way
            assert status != 403 and "which is not there" not in message

    run(use, Users({"eve": [":.staging:mine", "mine", "orders"]}))


def test_a_url_without_a_rule_is_denied() -> None:
    """A new route is closed until the guard knows its permissions."""

    async def handler(request: web.Request) -> web.Response:
        return web.json_response("open")

    async def use(registry: Registry) -> None:
        for route in ("GET /exporters", "GET /exporters/{name}"):
            assert (await registry.ask("owner", route, name="x"))[0] == 403
            assert (await registry.ask("admin", route, name="x"))[0] == 200

    run(use, more=[web.get("/exporters", handler), web.get("/exporters/{name}", handler)])
