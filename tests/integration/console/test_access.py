"""The console's pages of users, rules and quotas."""

from __future__ import annotations

import json
import shlex

import pytest
from click.testing import CliRunner
from tests.integration.acl_broker import AclBroker

from barnabas.cli.app import app
from barnabas.client import Admin
from barnabas.client.acls import create_acls
from barnabas.client.quotas import alter_quotas
from barnabas.kafka.security.acls import (
    AclBinding,
    AclEntry,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory):
    with AclBroker(tmp_path_factory.mktemp("access")) as broker:
        yield broker.open_address


def test_users_rules_and_quotas_are_told(start_console, guarded):
    Admin(guarded).set_password("alice", "secret")
    entry = AclEntry("User:alice", Permission.ALLOW, Operation.READ, "*")
    about = [
        (ResourceType.TOPIC, "orders-", PatternType.PREFIXED),
        (ResourceType.GROUP, "g", PatternType.LITERAL),
    ]
    create_acls(guarded, 60, [AclBinding(ResourcePattern(t, n, p), entry) for t, n, p in about])
    alter_quotas(guarded, 60, {"user": "alice", "client-id": None}, {"producer_byte_rate": 1024.0})
    console = start_console(guarded)
    told = console.get("access")
    assert {"name": "alice", "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]} in told["users"]["rows"]
    quota = {"of": {"user": "alice", "client-id": None}, "name": "producer_byte_rate", "value": 1024.0}
    assert quota in told["quotas"]["rows"]
    rule = {
        "principal": "User:alice",
        "permission": "ALLOW",
        "operation": "READ",
        "resource": "TOPIC",
        "pattern": "PREFIXED",
        "name": "orders-",
        "host": "*",
    }
    assert rule in told["rules"]["rows"]
    assert console.get("access", topic="orders-7")["rules"]["rows"] == [rule]
    assert console.get("access", topic="other")["rules"]["rows"] == []
    assert "secret" not in str(told)


def test_what_a_cluster_does_not_have_is_said_and_the_rest_is_shown(console):
    told = console.get("access")
    assert "authorizer" in told["rules"]["problem"].lower()
    assert told["users"]["problem"] is None and told["quotas"]["problem"] is None


RULE = {
    "principal": "User:carol",
    "permission": "DENY",
    "operation": "READ",
    "resource": "TOPIC",
    "pattern": "PREFIXED",
    "name": "pay-",
    "host": "10.0.0.7",
}


def test_rules_are_added_and_taken_away_one_by_one(start_console, guarded):
    console = start_console(guarded, allow_writes=True)
    other = {**RULE, "permission": "ALLOW", "host": "*"}
    told = console.change(do="create-rule", **RULE, execute=True).body
    assert told["done"]
    assert shlex.split(told["command"])[:9] == [
        *("barnabas", "acls", "deny", "carol", "read"),
        *("--topic", "pay-", "--prefixed", "--host"),
    ]
    assert console.change(do="create-rule", **other, execute=True).body["done"]
    assert {*rows(console)} == {row(RULE), row(other)}
    told = console.change(do="delete-rule", **RULE, execute=True).body
    assert told["done"] and rows(console) == [row(other)]
    assert console.change(do="delete-rule", **RULE, execute=True).status == 400
    # The command takes away the same rule, and no other.
    console.change(do="create-rule", **RULE, execute=True)
    assert_runs(told["command"])
    assert rows(console) == [row(other)]
    assert_runs(console.change(do="delete-rule", **other).body["command"])
    assert rows(console) == []


def row(rule):
    return tuple(sorted(rule.items()))


def rows(console):
    return [row(r) for r in console.get("access")["rules"]["rows"] if r["principal"] == "User:carol"]


def assert_runs(command):
    done = CliRunner().invoke(app, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "wrong",
    [
        {"operation": "FLY"},
        {"operation": "CLUSTER_ACTION"},
        {"resource": "ANY"},
        {"permission": "ANY"},
        {"name": ""},
        {"pattern": "MATCH"},
        {"resource": "CLUSTER", "operation": "ALTER"},
    ],
    ids=lambda wrong: "-".join(wrong.values()) or "no name",
)
def test_a_rule_that_cannot_be_is_refused(start_console, guarded, wrong):
    console = start_console(guarded, allow_writes=True)
    assert console.change(do="create-rule", **{**RULE, **wrong}, execute=True).status == 400
    assert rows(console) == []


def test_a_user_is_added_changed_and_deleted_and_no_password_is_told(start_console, guarded, caplog):
    caplog.set_level("INFO")
    console = start_console(guarded, allow_writes=True)
    told = console.change(do="set-password", user="dave", password="sesame-1", execute=True).body
    assert told["done"] and shlex.split(told["command"])[:4] == ["barnabas", "users", "add", "dave"]
    names = [user["name"] for user in console.get("access")["users"]["rows"]]
    assert "dave" in names
    assert console.change(do="delete-user", user="dave", confirm="bob", execute=True).status == 400
    assert console.change(do="delete-user", user="dave", confirm="dave", execute=True).body["done"]
    assert "dave" not in [user["name"] for user in console.get("access")["users"]["rows"]]
    seen = json.dumps([told, console.get("overview")]) + caplog.text
    assert "users add dave" in caplog.text and "sesame" not in seen


def test_a_console_that_only_reads_changes_neither_users_nor_rules(start_console, guarded):
    console = start_console(guarded)
    assert console.change(do="create-rule", **RULE, execute=True).status == 403
    assert console.change(do="set-password", user="eve", password="x", execute=True).status == 403
    assert rows(console) == [] and "eve" not in str(console.get("access")["users"])
