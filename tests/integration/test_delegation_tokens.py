"""Logins by delegation tokens (KIP-48): a client with a token has the permissions of its owner until it
expires.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest
from tests.integration.acl_broker import AclBroker
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.create_delegation_token import (
    CreatableRenewers,
    CreateDelegationTokenRequest,
)
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.kafka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.security.acls import Operation, Permission, ResourceType
from barnabas.kafka.security.sasl_client import scram

HOUR = 3_600_000
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512"]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    settings = {
        "delegation.token.master.key": "a secret of the cluster",
        "delegation.token.expiry.time.ms": str(HOUR),
        "delegation.token.expiry.check.interval.ms": "100",
        "sasl.enabled.mechanisms": ",".join(["PLAIN", *MECHANISMS]),
        "connection.failed.authentication.delay.ms": "0",
    }
    with AclBroker(tmp_path_factory.mktemp("tokens"), **settings) as broker:
        broker.add("alice")
        yield broker


@pytest.fixture
def alice(broker: AclBroker) -> Iterator[Wire]:
    wire = broker.connect("alice")
    yield wire
    wire.close()


def begin(wire: Wire, mechanism: str, token_id: str, password: str, *, is_token: bool = True) -> Any:
    """Log in, and return the broker's answer to the last message."""
    assert wire(SaslHandshakeRequest(mechanism=mechanism), 1).error_code == 0
    client = scram(mechanism, token_id, password, b"eighteen bytes....", is_token=is_token)
    challenge = wire(SaslAuthenticateRequest(auth_bytes=next(client)), 2)
    assert challenge.error_code == 0
    answer = wire(SaslAuthenticateRequest(auth_bytes=client.send(challenge.auth_bytes)), 2)
    if answer.error_code == 0:
        with pytest.raises(StopIteration):  # the broker has proven that it knows the token, too
            client.send(answer.auth_bytes)
    return answer


def password(token: Any) -> str:
    return base64.b64encode(token.hmac).decode()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_who_has_a_token_is_its_owner_until_it_expires(broker, alice, mechanism):
    token = alice(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    wire = Wire(broker.address)
    answer = begin(wire, mechanism, token.token_id, password(token))
    assert answer.error_code == 0
    assert 0 < answer.session_lifetime_ms <= HOUR
    admin = Wire(broker.open_address)
    rule = AclCreation(
        resource_type=ResourceType.TOPIC,
        resource_name=f"of-{mechanism}",
        principal="User:alice",
        host="*",
        operation=Operation.CREATE,
        permission_type=Permission.ALLOW,
    )
    topics = [
        CreatableTopic(name=f"{kind}-{mechanism}", num_partitions=1, replication_factor=1)
        for kind in ("of", "not-of")
    ]
    assert admin(CreateAclsRequest(creations=[rule])).results[0].error_code == 0
    made = wire(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
    assert [each.error_code for each in made.topics] == [0, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    admin.close()
    wire.close()


def test_who_has_logged_in_by_a_token_may_do_nothing_with_tokens(broker, alice):
    token = alice(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    wire = Wire(broker.address)
    assert begin(wire, "SCRAM-SHA-256", token.token_id, password(token)).error_code == 0
    for request in (
        CreateDelegationTokenRequest(max_lifetime_ms=-1),
        ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1),
        DescribeDelegationTokenRequest(owners=None),
    ):
        assert wire(request).error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    wire.close()
    assert token.token_id in [
        each.token_id for each in alice(DescribeDelegationTokenRequest(owners=None)).tokens
    ]


@pytest.mark.parametrize(
    ("token_id", "wrong", "is_token"),
    [("{id}", "secret", True), ("{id}", "{password}", False), ("alice", "secret", True), ("none", "x", True)],
)
def test_a_token_is_no_user_and_a_user_no_token(broker, alice, token_id, wrong, is_token):
    token = alice(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    known = {"id": token.token_id, "password": password(token)}
    wire = Wire(broker.address)
    answer = begin(wire, "SCRAM-SHA-256", token_id.format(**known), wrong.format(**known), is_token=is_token)
    assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
    wire.close()


def test_nobody_logs_in_by_a_token_that_was_deleted_or_has_expired(broker, alice):
    for period_ms in (-1, 0):
        token = alice(CreateDelegationTokenRequest(max_lifetime_ms=-1))
        ended = alice(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms))
        assert ended.error_code == 0
        while token.token_id in [
            each.token_id for each in alice(DescribeDelegationTokenRequest(owners=None)).tokens
        ]:
            pass  # until the job has deleted it
        wire = Wire(broker.address)
        answer = begin(wire, "SCRAM-SHA-256", token.token_id, password(token))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        wire.close()


def test_the_tokens_of_a_deleted_user_are_deleted_and_no_others(broker, alice):
    """A token stays deleted when a client creates a user with the same name again."""
    broker.add("bob", "carol")
    bob, carol = broker.connect("bob"), broker.connect("carol")
    alices = alice(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    bobs = [
        bob(
            CreateDelegationTokenRequest(
                max_lifetime_ms=-1,
                renewers=[CreatableRenewers(principal_type="User", principal_name="alice")],
            )
        )
        for _ in range(3)
    ]
    carols = carol(
        CreateDelegationTokenRequest(
            max_lifetime_ms=-1, renewers=[CreatableRenewers(principal_type="User", principal_name="bob")]
        )
    )
    held = Wire(broker.address)
    assert begin(held, "SCRAM-SHA-256", bobs[0].token_id, password(bobs[0])).error_code == 0
    delete_user(broker.open_address, "bob")
    for wire in (held, bob):  # their connections are closed
        assert wire.is_closed()
        wire.close()
    broker.add("bob")
    for token in bobs:
        wire = Wire(broker.address)
        answer = begin(wire, "SCRAM-SHA-256", token.token_id, password(token))
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        wire.close()
    left = {each.token_id for each in alice(DescribeDelegationTokenRequest(owners=None)).tokens}
    assert alices.token_id in left and not left & {token.token_id for token in bobs}
    for token in (alices, carols):
        wire = Wire(broker.address)
        assert begin(wire, "SCRAM-SHA-256", token.token_id, password(token)).error_code == 0
        wire.close()
    carol.close()


def test_a_user_who_keeps_one_mechanism_keeps_the_tokens(broker):
    broker.add("dora")
    admin = Wire(broker.open_address)
    other = ScramCredentialUpsertion(
        name="dora", mechanism=2, iterations=4096, salt=b"salt", salted_password=bytes(64)
    )
    assert admin(AlterUserScramCredentialsRequest(upsertions=[other])).results[0].error_code == 0
    dora = broker.connect("dora")
    token = dora(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    dora.close()
    deletion = ScramCredentialDeletion(name="dora", mechanism=1)
    assert admin(AlterUserScramCredentialsRequest(deletions=[deletion])).results[0].error_code == 0
    admin.close()
    wire = Wire(broker.address)
    assert begin(wire, "SCRAM-SHA-256", token.token_id, password(token)).error_code == 0
    wire.close()


def delete_user(address: str, user: str) -> None:
    admin = Wire(address)
    request = AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name=user, mechanism=1)])
    assert admin(request).results[0].error_code == 0
    admin.close()


def test_tokens_are_for_those_who_have_logged_in(broker):
    wire = Wire(broker.open_address)
    answer = wire(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert answer.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    wire.close()
