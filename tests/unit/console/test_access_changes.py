"""Changes of users and ACLs that pages request: the shown command, and what is carried out."""

from __future__ import annotations

import shlex
from types import SimpleNamespace

import pytest

from barnabas.console import access_changes
from barnabas.console.access_changes import create_rule, delete_rule, delete_user, set_password
from barnabas.console.pages.query import QueryError
from barnabas.kafka.security.acls import Operation, PatternType, Permission, ResourceType

RULE = {
    "principal": "User:carol",
    "permission": "DENY",
    "operation": "READ",
    "resource": "TOPIC",
    "pattern": "PREFIXED",
    "name": "pay-",
    "host": "10.0.0.7",
}
SERVERS = "127.0.0.1:9092"


class Admin:
    """Notes the passwords that are set."""

    def __init__(self):
        self.passwords = {"bob": "secret"}

    def set_password(self, user, password):
        self.passwords[user] = password

    def delete_user(self, user):
        del self.passwords[user]


@pytest.fixture
def view():
    return SimpleNamespace(admin=Admin(), servers=SERVERS)


@pytest.fixture
def rules(monkeypatch):
    """Collect the ACLs that a change creates, and the filters by which a change deletes ACLs."""
    found = []
    monkeypatch.setattr(access_changes, "create_acls", lambda servers, timeout, made: found.extend(made))
    monkeypatch.setattr(access_changes, "delete_acls", lambda servers, timeout, gone: found.extend(gone))
    return found


def words(change):
    return shlex.split(change.command(SERVERS))[1:-2]  # without "barnabas" and the servers


def test_a_password_is_set_only_when_the_change_is_carried_out_and_is_not_shown(view):
    change = set_password(view, {"user": "ana", "password": "sesame"})
    assert "ana" not in view.admin.passwords
    assert words(change) == ["users", "add", "ana"]
    change.carry_out()
    assert view.admin.passwords["ana"] == "sesame"


def test_a_password_of_more_than_a_kilobyte_is_refused(view):
    with pytest.raises(QueryError, match="at most 1000 bytes"):
        set_password(view, {"user": "ana", "password": "ü" * 501})
    set_password(view, {"user": "ana", "password": "ü" * 500}).carry_out()


def test_a_user_is_deleted_only_if_its_name_is_typed(view):
    for typed in ({}, {"confirm": "ana"}):
        with pytest.raises(QueryError, match="type bob"):
            delete_user(view, {"user": "bob", **typed})
    delete_user(view, {"user": "bob", "confirm": "bob"}).carry_out()
    assert view.admin.passwords == {}


def test_a_rule_is_made_as_the_page_words_it(view, rules):
    change = create_rule(view, RULE)
    assert words(change) == [
        *("acls", "deny", "carol", "read", "--topic", "pay-", "--prefixed"),
        *("--host", "10.0.0.7"),
    ]
    change.carry_out()
    ((resource, entry),) = rules
    assert (resource.type, resource.pattern, resource.name) == (
        ResourceType.TOPIC,
        PatternType.PREFIXED,
        "pay-",
    )
    assert (entry.principal, entry.host) == ("User:carol", "10.0.0.7")
    assert (entry.operation, entry.permission) == (Operation.READ, Permission.DENY)


def test_a_principal_without_a_type_is_a_user_and_a_rule_without_a_host_is_for_all(view, rules):
    create_rule(view, {**RULE, "principal": " carol ", "permission": "ALLOW", "host": ""}).carry_out()
    ((_, entry),) = rules
    assert (entry.principal, entry.host, entry.permission) == ("User:carol", "*", Permission.ALLOW)


def test_a_rule_of_the_cluster_needs_no_name(view, rules):
    wanted = {**RULE, "resource": "CLUSTER", "operation": "ALTER", "pattern": "LITERAL", "name": ""}
    change = create_rule(view, wanted)
    assert words(change)[3:5] == ["alter", "--cluster"]
    change.carry_out()
    assert rules[0][0].name == "kafka-cluster"


def test_exactly_one_rule_is_deleted_and_one_that_has_gone_is_told(view, rules, monkeypatch):
    wanted = {**RULE, "permission": "ALLOW", "host": "*"}
    change = delete_rule(view, wanted)
    assert words(change)[-4:] == ["--host", "*", "--permission", "allow"]
    with pytest.raises(QueryError, match="no such rule any more"):
        change.carry_out()
    (asked,) = rules
    assert None not in asked
    assert Permission.ALLOW in asked and PatternType.PREFIXED in asked
    monkeypatch.setattr(access_changes, "delete_acls", lambda servers, timeout, gone: gone)
    assert delete_rule(view, wanted).carry_out() == 1


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"operation": "FLY"}, "operation=FLY: write one of"),
        ({"resource": "ANY"}, "resource=ANY: write one of"),
        ({"permission": "ANY"}, "write one of ALLOW, DENY"),
        ({"pattern": "MATCH"}, "write one of LITERAL, PREFIXED"),
        ({"name": " "}, "name is missing"),
        ({"principal": None}, "principal is missing"),
        ({"resource": "CLUSTER", "operation": "ALTER"}, "there is one cluster"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_with_the_field(view, wrong, complaint):
    with pytest.raises(QueryError, match=complaint):
        create_rule(view, {**RULE, **wrong})
