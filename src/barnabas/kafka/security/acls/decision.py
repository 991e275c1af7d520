"""Decides whether the rules allow an operation, as pure functions of rules, principal, host and resource."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

from barnabas.kafka.security.acls.acls import Acls
from barnabas.kafka.security.acls.model import (
    ANY_HOST,
    ANY_NAME,
    AclBinding,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    canonical_host,
)

#: the operations that allow others beside themselves; a DENY implies nothing
_IMPLIED_BY = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_DENYING = {operation: frozenset((operation, Operation.ALL)) for operation in Operation}
_ALLOWING = {
    operation: frozenset((operation, Operation.ALL, *_IMPLIED_BY.get(operation, ())))
    for operation in Operation
}
#: a name that no rule is expected to have, to ask whether super users or the absence of rules decide
_NO_NAME = "hardcode"


class Reason(Enum):
    """The reason for a decision."""

    SUPER_USER = "is one of super.users"
    RULE = "a rule"
    NO_ACL = "allow.everyone.if.no.acl.found is true and no rule is about the resource"
    NOTHING = "no rule allows it"


class Decision(NamedTuple):
    """Whether an operation is allowed, and why."""

    is_allowed: bool
    reason: Reason
    #: the rule that has decided, when one has
    rule: AclBinding | None = None


class SubjectRules(NamedTuple):
    """The settings ``super.users`` and ``allow.everyone.if.no.acl.found``, which `decide` also applies."""

    super_users: frozenset[str] = frozenset()
    allow_everyone_if_no_acl: bool = False


def decide(
    acls: Acls,
    subjects: SubjectRules,
    principal: str,
    host: str,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> Decision:
    """Decide whether a principal (``User:alice``) at a host may perform an operation on a resource.

    `host` is an IP address. The resource has the name `name` and the type `kind`.

    Super users (`subjects`) may do everything. For others, any DENY wins. ALLOW of READ, WRITE, DELETE or
    ALTER implies DESCRIBE. ALLOW of ALTER_CONFIGS implies DESCRIBE_CONFIGS. If no rule is about the resource,
    the setting ``allow.everyone.if.no.acl.found`` (`subjects`) decides.
    """
    if principal in subjects.super_users:
        return Decision(True, Reason.SUPER_USER)
    host = canonical_host(host)
    denying, allowing = _DENYING[operation], _ALLOWING[operation]
    allowed: AclBinding | None = None
    is_found = False
    for resource, rules in acls.about(kind, name):
        is_found = True
        for entry, entry_host in rules.of(principal):
            if entry_host not in (host, ANY_HOST):
                continue
            if entry.permission is Permission.DENY:
                if entry.operation in denying:
                    return Decision(False, Reason.RULE, AclBinding(resource, entry))
            elif allowed is None and entry.operation in allowing:
                allowed = AclBinding(resource, entry)
    if allowed is not None:
        return Decision(True, Reason.RULE, allowed)
    if not is_found and subjects.allow_everyone_if_no_acl:
        return Decision(True, Reason.NO_ACL)
    return Decision(False, Reason.NOTHING)


def decide_any(
    acls: Acls, subjects: SubjectRules, principal: str, host: str, operation: Operation, kind: ResourceType
) -> bool:
    """Whether a principal may perform an operation on at least one possible resource of a type (KIP-679).

    Return True in each of these cases:

    - The principal is a super user (`subjects`).
    - An ALLOW for all resources (``*``) allows the operation, or another operation that implies it (see
      `decide`). No DENY for ``*`` denies the operation.
    - An ALLOW of the operation, or of ALL, is for a name or a prefix. No DENY of the operation, or of ALL, is
      for the same pattern, for a prefix of the name or prefix, or for ``*``.
    - No rule is about all resources (``*``), and ``allow.everyone.if.no.acl.found`` (`subjects`) is true.
    """
    if decide(acls, subjects, principal, host, operation, kind, _NO_NAME).is_allowed:
        return True
    host = canonical_host(host)
    matching = _DENYING[operation]
    allowed: list[tuple[PatternType, str]] = []
    denied: set[tuple[PatternType, str]] = set()
    for resource, rules in acls.naming(principal):
        if resource.type is not kind:
            continue
        key = resource.pattern, resource.name
        for entry, entry_host in rules.of(principal):
            if entry_host in (host, ANY_HOST) and entry.operation in matching:
                if entry.permission is Permission.DENY:
                    denied.add(key)
                else:
                    allowed.append(key)
    if (PatternType.LITERAL, ANY_NAME) in denied:
        return False
    return any(not _is_covered(pattern, name, denied) for pattern, name in allowed)


def _is_covered(pattern: PatternType, name: str, denied: set[tuple[PatternType, str]]) -> bool:
    if pattern is PatternType.LITERAL and name == ANY_NAME:
        return False
    if pattern is PatternType.LITERAL and (pattern, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))
