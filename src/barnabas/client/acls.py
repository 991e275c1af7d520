"""Requests about ACLs, sent without librdkafka, which does not support all resources and operations.

In each function, `servers` are the addresses of brokers, and `timeout` is the time limit in seconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.client.brokers import ask_once
from barnabas.client.errors import check_code
from barnabas.kafka.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.kafka.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.kafka.security.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Operation,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)


def describe_acls(servers: str, timeout: float, chosen: AclFilter) -> list[AclBinding]:
    """Return the ACLs that match the filter `chosen`, sorted.

    `servers` are the addresses of brokers (``host:port,...``); `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers.
    """
    request = DescribeAclsRequest(
        resource_type_filter=chosen.type,
        resource_name_filter=chosen.name,
        pattern_type_filter=chosen.pattern,
        principal_filter=chosen.principal,
        host_filter=chosen.host,
        operation=chosen.operation,
        permission_type=chosen.permission,
    )
    answer = ask_once(servers, timeout, request)
    check_code(answer.error_code, answer.error_message)
    return sorted(
        _rule(
            (resource.resource_type, resource.resource_name, resource.pattern_type),
            (acl.principal, acl.permission_type, acl.operation, acl.host),
        )
        for resource in answer.resources
        for acl in resource.acls
    )


def create_acls(servers: str, timeout: float, rules: Sequence[AclBinding]) -> None:
    """Create ACLs. It is no error if an ACL exists already.

    `servers` are the addresses of brokers (``host:port,...``); `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected an ACL. It may have created the other ones.
        ClientError: no broker answers.
    """
    creations = [
        AclCreation(
            resource_type=resource.type,
            resource_name=resource.name,
            resource_pattern_type=resource.pattern,
            principal=entry.principal,
            host=entry.host,
            operation=entry.operation,
            permission_type=entry.permission,
        )
        for resource, entry in rules
    ]
    for result in ask_once(servers, timeout, CreateAclsRequest(creations=creations)).results:
        check_code(result.error_code, result.error_message)


def delete_acls(servers: str, timeout: float, filters: Sequence[AclFilter]) -> list[AclBinding]:
    """Delete the ACLs that match any of the filters. Return the deleted ACLs, sorted.

    `servers` are the addresses of brokers (``host:port,...``); `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected a filter, or did not delete an ACL. It may have deleted other ACLs.
        ClientError: no broker answers.
    """
    request = DeleteAclsRequest(
        filters=[
            DeleteAclsFilter(
                resource_type_filter=each.type,
                resource_name_filter=each.name,
                pattern_type_filter=each.pattern,
                principal_filter=each.principal,
                host_filter=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in filters
        ]
    )
    gone: set[AclBinding] = set()
    for result in ask_once(servers, timeout, request).filter_results:
        check_code(result.error_code, result.error_message)
        for acl in result.matching_acls:
            check_code(acl.error_code, acl.error_message)
            gone.add(
                _rule(
                    (acl.resource_type, acl.resource_name, acl.pattern_type),
                    (acl.principal, acl.permission_type, acl.operation, acl.host),
                )
            )
    return sorted(gone)


def _rule(resource: tuple[int, str, int], entry: tuple[str, int, int, str]) -> AclBinding:
    kind, name, pattern = resource
    principal, permission, operation, host = entry
    return AclBinding(
        ResourcePattern(ResourceType(kind), name, PatternType(pattern)),
        AclEntry(principal, Permission(permission), Operation(operation), host),
    )
