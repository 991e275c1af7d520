"""Delegation tokens, as clients create, renew, expire and see them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests.unit.broker.server.handlers.admin.conftest import AdminBroker

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.logins.delegation_tokens import MAX_RENEWERS, TokenPrincipal
from barnabas.broker.metadata import token_nodes
from barnabas.broker.server.forwarding import decode_principal, encode_principal
from barnabas.kafka.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from barnabas.kafka.protocol.messages.describe_delegation_token import (
    DescribeDelegationTokenOwner,
    DescribeDelegationTokenRequest,
)
from barnabas.kafka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.kafka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.kafka.security.acls import (
    AclBinding,
    AclEntry,
    Authorizer,
    Operation,
    Permission,
    ResourcePattern,
    ResourceType,
    SubjectRules,
)
from barnabas.kafka.security.principal import ANONYMOUS, Principal

ALICE, BOB, CAROL, ROOT = (Principal(name) for name in ("alice", "bob", "carol", "root"))
HOUR = 3_600_000


def play(scenario: Callable[[AdminBroker], Awaitable[None]], secret: str | None = "secret") -> None:
    async def session() -> None:
        config = BrokerConfig(
            node_id=1,
            delegation_token_secret_key=secret,
            delegation_token_max_lifetime_ms=10 * HOUR,
            delegation_token_expiry_time_ms=HOUR,
        )
        authorizer = Authorizer(lambda: broker.image.acls, SubjectRules(frozenset({str(ROOT)})))
        broker = AdminBroker(config, authorizer)
        await broker.start(0)
        await scenario(broker)

    asyncio.run(session())


async def create(broker: AdminBroker, by: Principal, **fields: Any) -> Any:
    return await broker.ask(CreateDelegationTokenRequest(**fields), principal=by)


async def renew(broker: AdminBroker, by: Principal, hmac: bytes, period_ms: int = -1) -> Any:
    return await broker.ask(RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=period_ms), principal=by)


async def expire(broker: AdminBroker, by: Principal, hmac: bytes, period_ms: int = -1) -> Any:
    request = ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=period_ms)
    return await broker.ask(request, principal=by)


async def seen(broker: AdminBroker, by: Principal, *owners: Principal) -> list[str]:
    named = [DescribeDelegationTokenOwner(principal_type=o.kind, principal_name=o.name) for o in owners]
    answer = await broker.ask(DescribeDelegationTokenRequest(owners=named or None), principal=by)
    return [token.token_id for token in answer.tokens]


async def code(answer: Awaitable[Any]) -> ErrorCode:
    with pytest.raises(KafkaError) as refused:
        await answer
    return refused.value.code


def renewers(*who: Principal) -> list[CreatableRenewers]:
    return [CreatableRenewers(principal_type=each.kind, principal_name=each.name) for each in who]


async def allow(broker: AdminBroker, who: Principal, what: Operation, kind: ResourceType, name: str) -> None:
    entry = AclEntry(str(who), Permission.ALLOW, what)
    assert not await broker.controller.acls.create([AclBinding(ResourcePattern(kind, name), entry)])


def test_a_token_holds_for_a_while_and_is_renewed_by_its_owner_and_its_renewers() -> None:
    async def scenario(broker: AdminBroker) -> None:
        now = broker.clock.now_ms()
        token = await create(broker, ALICE, renewers=renewers(BOB), max_lifetime_ms=3 * HOUR)
        assert (token.principal_name, token.token_requester_principal_name) == ("alice", "alice")
        assert token.issue_timestamp_ms == now
        assert token.expiry_timestamp_ms == now + HOUR
        assert token.max_timestamp_ms == now + 3 * HOUR
        assert len(token.hmac) == 64
        stored = json.loads((await broker.store.get(token_nodes.path(token.token_id))).data)
        assert stored["owner"] == "User%3Aalice"
        assert "secret" not in str(stored) and token.hmac.hex() not in str(stored)
        assert (await renew(broker, ALICE, token.hmac)).expiry_timestamp_ms == now + HOUR
        assert (await renew(broker, BOB, token.hmac, 2 * HOUR)).expiry_timestamp_ms == now + 2 * HOUR
        assert (await renew(broker, BOB, token.hmac, 2**63 - 1)).expiry_timestamp_ms == now + 3 * HOUR
        assert await code(renew(broker, CAROL, token.hmac)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert await code(renew(broker, ALICE, b"other")) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    play(scenario)


def test_a_lifetime_is_never_longer_than_the_settings_allow() -> None:
    async def scenario(broker: AdminBroker) -> None:
        for wanted in (-1, 0, 2**63 - 1):
            token = await create(broker, ALICE, max_lifetime_ms=wanted)
            assert token.max_timestamp_ms - token.issue_timestamp_ms == 10 * HOUR

    play(scenario)


def test_a_token_is_expired_by_its_owner_later_or_at_once() -> None:
    async def scenario(broker: AdminBroker) -> None:
        now = broker.clock.now_ms()
        token = await create(broker, ALICE)
        assert await code(expire(broker, BOB, token.hmac)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        assert (await expire(broker, ALICE, token.hmac, 1000)).expiry_timestamp_ms == now + 1000
        assert (await expire(broker, ALICE, token.hmac)).expiry_timestamp_ms == now
        assert not broker.image.delegation_tokens
        assert await code(expire(broker, ALICE, token.hmac)) is ErrorCode.DELEGATION_TOKEN_NOT_FOUND

    play(scenario)


def test_a_token_that_has_expired_cannot_be_renewed_and_is_deleted() -> None:
    async def scenario(broker: AdminBroker) -> None:
        gone, kept = await create(broker, ALICE), await create(broker, ALICE)
        await expire(broker, ALICE, gone.hmac, 0)
        broker.clock.advance(1)
        assert await code(renew(broker, ALICE, gone.hmac)) is ErrorCode.DELEGATION_TOKEN_EXPIRED
        await broker.controller.tokens.delete_expired()
        assert set(broker.image.delegation_tokens) == {kept.token_id}

    play(scenario)


def test_one_sees_the_tokens_that_one_owns_renews_or_has_created() -> None:
    async def scenario(broker: AdminBroker) -> None:
        token = (await create(broker, ALICE, renewers=renewers(BOB))).token_id
        other = (
            await create(broker, ROOT, owner_principal_type="User", owner_principal_name="carol")
        ).token_id
        assert await seen(broker, ALICE) == await seen(broker, BOB) == [token]
        assert await seen(broker, CAROL) == [other]
        assert await seen(broker, ROOT) == sorted([token, other])
        assert await seen(broker, ROOT, CAROL) == [other]
        assert await seen(broker, ROOT, BOB) == [token]
        nobody = await broker.ask(DescribeDelegationTokenRequest(owners=[]), principal=ROOT)
        assert nobody.tokens == []

    play(scenario)


def test_rules_let_others_see_tokens() -> None:
    async def scenario(broker: AdminBroker) -> None:
        token = (await create(broker, ALICE)).token_id
        assert await seen(broker, BOB) == await seen(broker, CAROL) == []
        await allow(broker, BOB, Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token)
        await allow(broker, CAROL, Operation.DESCRIBE_TOKENS, ResourceType.USER, "User:alice")
        assert await seen(broker, BOB) == await seen(broker, CAROL) == [token]

    play(scenario)


def test_tokens_for_others_need_a_rule() -> None:
    async def scenario(broker: AdminBroker) -> None:
        owner = {"owner_principal_type": "User", "owner_principal_name": "alice"}
        refused = await code(create(broker, BOB, **owner))
        assert refused is ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED
        await allow(broker, BOB, Operation.CREATE_TOKENS, ResourceType.USER, "User:alice")
        token = await create(broker, BOB, **owner)
        assert (token.principal_name, token.token_requester_principal_name) == ("alice", "bob")
        assert await code(renew(broker, BOB, token.hmac)) is ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH

    play(scenario)


@pytest.mark.parametrize("who", [ANONYMOUS, TokenPrincipal("alice")])
def test_who_has_not_logged_in_by_an_own_password_may_do_nothing_with_tokens(who: Principal) -> None:
    async def scenario(broker: AdminBroker) -> None:
        changes = (create(broker, who), renew(broker, who, b""), expire(broker, who, b""))
        for request in (*changes, seen(broker, who)):
            assert await code(request) is ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

    play(scenario)


def test_without_a_secret_key_there_are_no_tokens() -> None:
    async def scenario(broker: AdminBroker) -> None:
        requests = (create(broker, ALICE), renew(broker, ALICE, b""), expire(broker, ALICE, b""))
        for request in (*requests, seen(broker, ALICE)):
            assert await code(request) is ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED

    play(scenario, secret=None)


def test_what_a_client_may_ask_for_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: AdminBroker) -> None:
        group = [CreatableRenewers(principal_type="Group", principal_name="staff")]
        assert await code(create(broker, ALICE, renewers=group)) is ErrorCode.INVALID_PRINCIPAL_TYPE
        for many in ([BOB] * (MAX_RENEWERS + 1), [Principal("b" * 300)], [Principal("")]):
            assert await code(create(broker, ALICE, renewers=renewers(*many))) is ErrorCode.INVALID_REQUEST
        monkeypatch.setattr("barnabas.broker.controller.tokens.MAX_TOKENS", 1)
        await create(broker, ALICE)
        assert await code(create(broker, ALICE)) is ErrorCode.POLICY_VIOLATION

    play(scenario)


def test_what_is_logged_of_a_request_has_no_hmac() -> None:
    for kind in (RenewDelegationTokenRequest, ExpireDelegationTokenRequest):
        assert "hidden" not in repr(kind(hmac=b"hidden"))


def test_a_forwarded_request_says_that_its_client_has_logged_in_by_a_token() -> None:
    for principal in (ALICE, TokenPrincipal("alice")):
        forwarded = decode_principal(encode_principal(principal))
        assert forwarded == ALICE
        assert type(forwarded) is type(principal)
