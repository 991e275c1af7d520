"""Makes the changes of users and ACLs that pages request."""

from __future__ import annotations

from barnabas.client.acls import create_acls, delete_acls
from barnabas.console.change import Change, ChangeFields, must_confirm, text_of, word_of
from barnabas.console.pages.query import QueryError
from barnabas.console.rule_words import OPERATIONS, OPTIONS
from barnabas.console.view import ClusterView
from barnabas.kafka.security.acls import (
    ANY_HOST,
    CLUSTER_NAME,
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

_TIMEOUT_S = 10.0
_MAX_PASSWORD = 1000


def set_password(view: ClusterView, fields: ChangeFields) -> Change:
    """Return the change that adds a user, or gives a user another password.

    `fields` has the fields ``user`` and ``password`` of a page's form. The password is neither in the shown
    command nor in the log. Raises QueryError if a field is missing, or the password is too long.
    """
    user, password = text_of(fields, "user"), text_of(fields, "password")
    if len(password.encode()) > _MAX_PASSWORD:
        raise QueryError(f"password: at most {_MAX_PASSWORD} bytes")
    return Change(["users", "add", user], lambda: view.admin.set_password(user, password))


def delete_user(view: ClusterView, fields: ChangeFields) -> Change:
    """Return the change that deletes all passwords of a user.

    `fields` has the fields ``user`` and ``confirm`` of a page's form. Raises QueryError if ``user`` is
    missing, or ``confirm`` does not repeat it.
    """
    user = text_of(fields, "user")
    must_confirm(fields, user, "the user cannot log in any more")
    return Change(["users", "delete", user], lambda: view.admin.delete_user(user))


def create_rule(view: ClusterView, fields: ChangeFields) -> Change:
    """Return the change that adds an ACL. The change also succeeds if the ACL exists already.

    `fields` has the fields of the ACL in a page's form: ``resource``, ``name``, ``pattern``, ``principal``,
    ``operation``, ``permission`` and optional ``host``. Raises QueryError if one is missing or invalid.
    """
    rule = _rule(fields)
    command = ["acls", "deny" if rule.entry.permission is Permission.DENY else "grant", *_words(rule)]
    if rule.entry.host != ANY_HOST:
        command += ["--host", rule.entry.host]
    return Change(command, lambda: create_acls(view.servers, _TIMEOUT_S, [rule]))


def delete_rule(view: ClusterView, fields: ChangeFields) -> Change:
    """Return the change that deletes exactly one ACL.

    `fields` has the fields of the ACL in a page's form, as for `create_rule`. This function raises QueryError
    if a field is missing or invalid. The change itself raises QueryError if the ACL does not exist.
    """
    rule = _rule(fields)
    resource, entry = rule
    exactly = AclFilter(
        resource.type,
        resource.name,
        resource.pattern,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )

    def carry_out() -> int:
        gone = delete_acls(view.servers, _TIMEOUT_S, [exactly])
        if not gone:
            raise QueryError("there is no such rule any more")
        return len(gone)

    only = ["--host", entry.host, "--permission", entry.permission.name.lower()]
    return Change(["acls", "revoke", *_words(rule), *only], carry_out)


def _rule(fields: ChangeFields) -> AclBinding:
    """Return the ACL that the fields of a page's form describe.

    A principal without a type is a user. Without ``host``, the ACL is for all hosts. Raises QueryError if
    another field is missing, or a field is invalid.
    """
    kind = ResourceType[word_of(fields, "resource", OPERATIONS)]
    operation = Operation[word_of(fields, "operation", OPERATIONS[kind.name])]
    permission = Permission[word_of(fields, "permission", ("ALLOW", "DENY"))]
    name = CLUSTER_NAME if kind is ResourceType.CLUSTER else text_of(fields, "name").strip()
    pattern = PatternType[word_of(fields, "pattern", ("LITERAL", "PREFIXED"))]
    if pattern is PatternType.PREFIXED and kind is ResourceType.CLUSTER:
        raise QueryError("pattern: there is one cluster")
    principal, host = text_of(fields, "principal").strip(), str(fields.get("host") or ANY_HOST).strip()
    principal = principal if ":" in principal else f"User:{principal}"
    return AclBinding(ResourcePattern(kind, name, pattern), AclEntry(principal, permission, operation, host))


def _words(rule: AclBinding) -> list[str]:
    resource, entry = rule
    words = [entry.principal.removeprefix("User:"), entry.operation.name.lower()]
    option = OPTIONS[resource.type]
    words += [option] if resource.type is ResourceType.CLUSTER else [option, resource.name]
    return [*words, "--prefixed"] if resource.pattern is PatternType.PREFIXED else words
