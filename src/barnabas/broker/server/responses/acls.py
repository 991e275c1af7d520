"""Converts ACLs and filters from and to the messages of DescribeAcls, CreateAcls and DeleteAcls."""

from __future__ import annotations

from typing import Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.kafka.security.acls import (
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
from barnabas.kafka.security.principal import Principal

#: the error where there is no authorizer
DISABLED = KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer.class.name is set on this broker")
#: the longest name of a resource, a principal or a host in a rule, in bytes
_MAX_NAME_BYTES = 1000


class FilterFields(Protocol):
    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


class RuleFields(Protocol):
    resource_type: int
    resource_name: str
    resource_pattern_type: int
    principal: str
    host: str
    operation: int
    permission_type: int


def filter_of(fields: FilterFields) -> AclFilter:
    """Return the ACL filter in a DescribeAcls request, or in an item of a DeleteAcls request.

    Raises:
        KafkaError: INVALID_REQUEST, a field has an unknown code.
    """
    try:
        return AclFilter(
            ResourceType(fields.resource_type_filter),
            fields.resource_name_filter,
            PatternType(fields.pattern_type_filter),
            fields.principal_filter,
            fields.host_filter,
            Operation(fields.operation),
            Permission(fields.permission_type),
        )
    except ValueError as error:
        raise _refuse(f"the filter uses an unknown code: {error}") from error


def rule_of(fields: RuleFields) -> AclBinding:
    """Return the ACL that an item of a CreateAcls request asks to create.

    Raises:
        KafkaError: INVALID_REQUEST, the ACL is not valid.
    """
    try:
        kind = ResourceType(fields.resource_type)
        pattern = PatternType(fields.resource_pattern_type)
        operation = Operation(fields.operation)
        permission = Permission(fields.permission_type)
    except ValueError as error:
        raise _refuse(f"the rule uses an unknown code: {error}") from error
    if kind is ResourceType.ANY:
        raise _refuse("a rule is about one type of resources")
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise _refuse("the pattern of a rule is LITERAL or PREFIXED")
    if operation is Operation.ANY or permission is Permission.ANY:
        raise _refuse("a rule names one operation (or ALL), and ALLOW or DENY")
    name = fields.resource_name
    if not name:
        raise _refuse("a rule names its resource; * stands for all")
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        raise _refuse(f"the only resource of type CLUSTER is {CLUSTER_NAME}")
    try:
        Principal.parse(fields.principal)
    except ValueError as error:
        raise _refuse(str(error)) from error
    if not fields.host:
        raise _refuse("a rule names a host; * stands for all")
    if any(len(text.encode()) > _MAX_NAME_BYTES for text in (name, fields.principal, fields.host)):
        raise _refuse(f"names in rules have at most {_MAX_NAME_BYTES} bytes")
    entry = AclEntry(fields.principal, permission, operation, fields.host)
    return AclBinding(ResourcePattern(kind, name, pattern), entry)


def _refuse(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)


#: the value for a client that did not ask for its operations (KIP-430)
NOT_ASKED = -(2**31)
