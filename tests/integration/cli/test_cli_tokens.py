"""`barnabas tokens` against a broker with logins."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from tests.integration.acl_broker import PASSWORD, AclBroker

from barnabas.cli.app import app

Run = Callable[..., Result]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    settings = {"delegation.token.secret.key": "a secret of the cluster"}
    with AclBroker(tmp_path_factory.mktemp("tokens"), **settings) as broker:
        broker.add("alice", "bob")
        yield broker


@pytest.fixture
def run(broker: AclBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.delenv("BARNABAS_BOOTSTRAP_SERVER", raising=False)

    def run(*words: str, user: str = "alice", code: int = 0) -> Result:
        file = tmp_path / f"{user}.properties"
        file.write_text(
            f"bootstrap.servers={broker.address}\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
            "sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required "
            f'username="{user}" password="{PASSWORD}";\n'
        )
        result = CliRunner().invoke(app, ["tokens", *words, "--config", str(file)])
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return run


def test_a_token_is_created_listed_renewed_and_expired(run: Run) -> None:
    created = json.loads(run("create", "--renewer", "bob", "--max-lifetime", "2d", "--json").stdout)
    token = created["id"]
    assert created["owner"] == "alice"
    for user in ("alice", "bob"):
        listed = run("list", user=user).stdout
        assert token in listed
        assert created["password"] not in listed
    assert f"{token} expires " in run("renew", token, "--for", "1h", user="bob").output
    [later] = [each for each in json.loads(run("list", "--json").stdout) if each["id"] == token]
    assert later["expires_ms"] < created["expires_ms"] < later["max_ms"]
    assert f"{token} expires " in run("expire", token, "--in", "10m").output
    assert f"{token} is deleted" in run("expire", token).output
    assert "there is no delegation token" in run("expire", token, code=1).output


def test_a_table_shows_the_password_once(run: Run) -> None:
    out = run("create").stdout
    assert "PASSWORD" in out
    token = out.splitlines()[1].split()[0]
    run("expire", token)


def test_another_owner_needs_a_rule(run: Run) -> None:
    assert "Not authorised" in run("create", "--owner", "bob", code=1).output
