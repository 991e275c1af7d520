"""Apache Kafka's tool for delegation tokens, and its clients, which log in with them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.compat.conftest import Java, ToolFailed
from tests.integration.acl_broker import PASSWORD, AclBroker

TOKENS = "org.apache.kafka.tools.DelegationTokenCommand"
TOPICS = "org.apache.kafka.tools.TopicCommand"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    settings = {
        "delegation.token.secret.key": "a secret of the cluster",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "super.users": "User:ANONYMOUS;User:alice",
    }
    with AclBroker(tmp_path_factory.mktemp("tokens"), **settings) as broker:
        broker.add("alice", "bob")
        yield broker


def login(folder: Path, name: str, mechanism: str, options: str) -> str:
    path = folder / f"{name}.properties"
    kind = "plain.Plain" if mechanism == "PLAIN" else "scram.Scram"
    path.write_text(
        f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism={mechanism}\n"
        f"sasl.jaas.config=org.apache.kafka.common.security.{kind}LoginModule required {options};\n"
    )
    return str(path)


def rows(output: str) -> list[list[str]]:
    """Return the cells of the tool's table: TOKENID HMAC OWNER REQUESTER RENEWERS ..."""
    lines = output.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("TOKENID")) + 1
    return [line.split() for line in lines[first:] if line.strip()]


def test_kafkas_tool_manages_tokens_and_its_clients_log_in_by_them(
    java: Java, broker: AclBroker, tmp_path: Path
) -> None:
    server = ("--bootstrap-server", broker.address)
    alice = login(tmp_path, "alice", "PLAIN", f'username="alice" password="{PASSWORD}"')
    bob = login(tmp_path, "bob", "PLAIN", f'username="bob" password="{PASSWORD}"')
    as_alice = (*server, "--command-config", alice)
    created = java.run(
        TOKENS, *as_alice, "--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob"
    )
    [[token_id, hmac, owner, requester, renewers, *_]] = rows(created)
    assert (owner, requester, renewers) == ("User:alice", "User:alice", "[User:bob]")
    described = java.run(TOKENS, *as_alice, "--describe", "--owner-principal", "User:alice")
    assert [row[:3] for row in rows(described)] == [[token_id, hmac, "User:alice"]]
    renew = ("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed renew operation" in java.run(TOKENS, *server, "--command-config", bob, *renew)

    for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512"):
        options = f'username="{token_id}" password="{hmac}" tokenauth="true"'
        by_token = (*server, "--command-config", login(tmp_path, "token", mechanism, options))
        topic = f"by-{mechanism}"
        java.run(TOPICS, *by_token, "--create", "--topic", topic)
        assert topic in java.run(TOPICS, *by_token, "--list").split()
    with pytest.raises(ToolFailed, match="Delegation Token requests are not allowed"):
        java.run(TOKENS, *by_token, "--create", "--max-life-time-period", "-1")

    expire = ("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in java.run(TOKENS, *as_alice, *expire)
    with pytest.raises(ToolFailed, match="uthentication failed"):
        java.run(TOPICS, *by_token, "--list")
