"""Delegation tokens (KIP-48) of a cluster whose metadata is in a real ZooKeeper: every broker knows them."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata.zookeeper.server import ZooKeeperServer
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from barnabas.kafka.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.kafka.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.kafka.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.security.sasl_client import scram

HOUR = 3_600_000
SCRAM = "SCRAM-SHA-512"
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="wonderland";'


@pytest.fixture
def brokers(zookeeper: ZooKeeperServer, tmp_path: Path) -> Iterator[list[str]]:
    """Start two brokers. Return the addresses at which clients log in."""
    running: list[BrokerServer] = []
    with ExitStack() as stack:
        for node in (1, 2):
            settings = {
                "node.id": str(node),
                "zookeeper.connect": f"{zookeeper.address}/tokens",
                "log.dirs": str(tmp_path / str(node)),
                "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
                "sasl.enabled.mechanisms": f"PLAIN,{SCRAM}",
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": JAAS,
                "delegation.token.secret.key": "a secret of the cluster",
                "connection.failed.authentication.delay.ms": "0",
            }
            server = BrokerServer(BrokerConfig.from_text(settings))
            server.start()
            stack.callback(server.stop)
            running.append(server)
        yield [next(endpoint.address for endpoint in server.bound if endpoint.has_sasl) for server in running]


@pytest.fixture
def alice(brokers: list[str]) -> Iterator[list[Wire]]:
    """Her connections, one to each broker."""
    with ExitStack() as stack:
        wires = []
        for address in brokers:
            wire = Wire(address)
            stack.callback(wire.close)
            assert wire(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            assert wire(SaslAuthenticateRequest(auth_bytes=b"\0alice\0wonderland"), 2).error_code == 0
            wires.append(wire)
        yield wires


def login(address: str, token: Any) -> int:
    """Log in with a token. Return the error code of the answer."""
    wire = Wire(address)
    try:
        assert wire(SaslHandshakeRequest(mechanism=SCRAM), 1).error_code == 0
        password = base64.b64encode(token.hmac).decode()
        client = scram(SCRAM, token.token_id, password, b"eighteen bytes....", is_token=True)
        challenge = wire(SaslAuthenticateRequest(auth_bytes=next(client)), 2)
        if challenge.error_code:
            return int(challenge.error_code)
        return int(wire(SaslAuthenticateRequest(auth_bytes=client.send(challenge.auth_bytes)), 2).error_code)
    finally:
        wire.close()


def wait_until(holds: Callable[[], bool]) -> None:
    """Brokers learn of each other's changes a moment later."""
    deadline = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_a_token_of_one_broker_is_known_renewed_and_ended_at_another(
    brokers: list[str], alice: list[Wire]
) -> None:
    first, second = alice
    token = first(CreateDelegationTokenRequest(max_lifetime_ms=-1))
    assert token.error_code == 0
    wait_until(lambda: login(brokers[1], token) == 0)

    renewed = second(RenewDelegationTokenRequest(hmac=token.hmac, renew_period_ms=HOUR))
    assert renewed.error_code == 0
    assert renewed.expiry_timestamp_ms < token.expiry_timestamp_ms  # an hour instead of a day

    def expiry_at_the_first() -> list[int]:
        listed = first(DescribeDelegationTokenRequest(owners=None)).tokens
        return [each.expiry_timestamp for each in listed if each.token_id == token.token_id]

    wait_until(lambda: expiry_at_the_first() == [renewed.expiry_timestamp_ms])
    assert login(brokers[0], token) == 0

    ended = first(ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=-1))
    assert ended.error_code == 0
    wait_until(lambda: login(brokers[1], token) == ErrorCode.SASL_AUTHENTICATION_FAILED)
    assert expiry_at_the_first() == []
