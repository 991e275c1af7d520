"""`barnabas acls` against a broker with an authorizer."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from tests.integration.acl_broker import AclBroker

from barnabas.cli.app import app


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with AclBroker(tmp_path_factory.mktemp("acls")) as broker:
        yield broker


@pytest.fixture
def run(broker):
    def run(*words, code=0):
        address = {"BARNABAS_BOOTSTRAP_SERVER": broker.open_address}
        ended = CliRunner().invoke(app, ["acls", *words], env=address, prog_name="barnabas")
        assert ended.exit_code == code, (ended.output, ended.exception)
        return ended

    yield run
    run("revoke", "alice")
    run("revoke", "*")


def test_rules_are_granted_listed_checked_and_revoked(run):
    run("grant", "alice", "read,write", "--topic", "orders-", "--prefixed")
    run("grant", "*", "write", "--topic", "orders-2", "--deny", "--host", "10.0.0.1")
    assert [rule["operation"] for rule in json.loads(run("list", "--of-user", "alice", "--json").stdout)] == [
        "READ",
        "WRITE",
    ]
    assert len(json.loads(run("list", "--topic", "orders-2", "--json").stdout)) == 3
    assert json.loads(run("list", "--topic", "other", "--json").stdout) == []
    allowed = run("check", "alice", "describe", "--topic", "orders-1").stdout
    assert allowed == (
        "DESCRIBE on TOPIC 'orders-1' is allowed: "
        "ALLOW User:alice READ on PREFIXED TOPIC 'orders-' from every host\n"
    )
    denied = run("check", "alice", "write", "--topic", "orders-2", "--host", "10.0.0.1", code=1).stdout
    assert denied.endswith("is denied: DENY User:* WRITE on LITERAL TOPIC 'orders-2' from 10.0.0.1\n")
    run("revoke", "alice", "write", "--topic", "orders-", "--prefixed")
    assert "no rule allows it" in run("check", "alice", "write", "--topic", "orders-1", code=1).stdout
    assert "one of super.users" in run("check", "ANONYMOUS", "alter", "--cluster").stdout


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["grant", "alice", "read"], "name a resource"),
        (["grant", "alice", "fly", "--topic", "t"], "fly is not an operation on a topic"),
        (["grant", "alice", "all", "--cluster", "--prefixed"], "cannot be used with --cluster"),
        (["check", "alice", "read"], "name a resource"),
    ],
)
def test_what_cannot_be_a_rule_is_told_at_once(run, words, told):
    assert told in run(*words, code=2).stderr


def test_without_an_authorizer_it_is_said_that_there_is_none(barnabas):
    refused = barnabas("acls", "grant", "alice", "read", "--topic", "t", code=1).err
    assert "no authorizer.class.name is set" in refused


def test_deny_is_a_command_of_its_own(run):
    run("grant", "alice", "all", "--topic", "*")
    told = run("deny", "alice", "read,delete", "--topic", "orders", "--host", "10.0.0.1").stdout
    assert "DENY User:alice READ on LITERAL TOPIC 'orders' from 10.0.0.1" in told
    run("check", "alice", "delete", "--topic", "orders", "--host", "10.0.0.1", code=1)
    run("check", "alice", "delete", "--topic", "orders")


def test_of_rules_about_one_resource_only_those_that_deny_are_taken_away(run):
    run("grant", "dan", "read", "--topic", "orders")
    run("deny", "dan", "read", "--topic", "orders")
    run("deny", "dan", "read", "--topic", "orders", "--host", "10.0.0.7")
    run("revoke", "dan", "read", "--topic", "orders", "--permission", "deny", "--host", "10.0.0.7")
    left = json.loads(run("list", "--of-user", "dan", "--json").stdout)
    assert sorted((rule["permission"], rule["host"]) for rule in left) == [("ALLOW", "*"), ("DENY", "*")]
    run("revoke", "dan", "--permission", "deny")
    (left,) = json.loads(run("list", "--of-user", "dan", "--json").stdout)
    assert left["permission"] == "ALLOW"
    run("revoke", "dan")
