"""The terms of access control lists, with the protocol's numbers (KIP-140, KIP-290)."""

from __future__ import annotations

import ipaddress
from enum import IntEnum
from functools import lru_cache
from typing import NamedTuple

#: the name of the one resource of type CLUSTER
CLUSTER_NAME = "kafka-cluster"
#: as a LITERAL pattern: every resource of the type
ANY_NAME = "*"
ANY_HOST = "*"
ANY_PRINCIPAL = "User:*"


class ResourceType(IntEnum):
    """The type of the resource of a rule."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """The way a rule's name selects resources. ANY and MATCH occur in filters only."""

    ANY = 1
    #: whatever holds for the resource named: literal, by prefix or `*`
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """An operation on a resource. ANY occurs in filters only."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """Allow or deny. ANY occurs in filters only."""

    ANY = 1
    DENY = 2
    ALLOW = 3


_O = Operation
#: the operations on resources of a type; authorized operations list these
SUPPORTED_OPERATIONS: dict[ResourceType, tuple[Operation, ...]] = {
    ResourceType.TOPIC: (
        _O.READ,
        _O.WRITE,
        _O.CREATE,
        _O.DELETE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (_O.READ, _O.DELETE, _O.DESCRIBE, _O.DESCRIBE_CONFIGS, _O.ALTER_CONFIGS),
    ResourceType.CLUSTER: (
        _O.CREATE,
        _O.ALTER,
        _O.DESCRIBE,
        _O.CLUSTER_ACTION,
        _O.DESCRIBE_CONFIGS,
        _O.ALTER_CONFIGS,
        _O.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (_O.WRITE, _O.DESCRIBE, _O.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (_O.DESCRIBE,),
    ResourceType.USER: (_O.CREATE_TOKENS, _O.DESCRIBE_TOKENS),
}


class ResourcePattern(NamedTuple):
    """A pattern that selects resources of one type: by name, by prefix, or all (`*`)."""

    type: ResourceType
    name: str
    pattern: PatternType = PatternType.LITERAL

    def matches(self, name: str) -> bool:
        """Whether the pattern selects the resource `name` of the pattern's type."""
        if self.pattern is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)


class AclEntry(NamedTuple):
    """The principal, operation, host and permission of a rule."""

    #: as Kafka writes it, ``User:alice``; `ANY_PRINCIPAL` is every principal
    principal: str
    permission: Permission
    operation: Operation
    #: an IP address, or `ANY_HOST`
    host: str = ANY_HOST


class AclBinding(NamedTuple):
    """A rule: an entry, and the resources to which it applies."""

    resource: ResourcePattern
    entry: AclEntry

    def __str__(self) -> str:
        kind, name, pattern = self.resource
        principal, permission, operation, host = self.entry
        return (
            f"{permission.name} {principal} {operation.name} on {pattern.name} {kind.name} '{name}' "
            f"from {'every host' if host == ANY_HOST else host}"
        )


class AclFilter(NamedTuple):
    """A filter of rules. None and ANY match everything.

    The pattern type MATCH selects all literal, prefixed and wildcard patterns that apply to the resource
    `name`.
    """

    type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def selects_resource(self, resource: ResourcePattern) -> bool:
        """Whether the filter can select rules of this resource pattern."""
        if self.type not in (ResourceType.ANY, resource.type):
            return False
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        if self.pattern is PatternType.MATCH:
            return resource.matches(self.name)
        return self.name == resource.name

    def selects_entry(self, entry: AclEntry) -> bool:
        """Whether the filter selects this entry."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    @property
    def exact(self) -> ResourcePattern | None:
        """Return the only resource pattern that the filter can select; None if it can select several."""
        is_one = self.pattern in (PatternType.LITERAL, PatternType.PREFIXED)
        if is_one and self.name is not None and self.type is not ResourceType.ANY:
            return ResourcePattern(self.type, self.name, self.pattern)
        return None


@lru_cache(maxsize=1024)
def canonical_host(host: str) -> str:
    """Return an IP address in its usual form, and other text unchanged. IPv4-mapped IPv6 becomes IPv4.

    Java writes ``0:0:0:0:0:0:0:1`` for ``::1``.
    """
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)
