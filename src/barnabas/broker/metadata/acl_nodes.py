"""The nodes of ACLs: paths and contents, in the format of Apache Kafka on ZooKeeper (``ZkData``).

    /kafka-acl/TYPE/NAME                    the rules of one resource, or of all resources (`*`)
    /kafka-acl-extended/prefixed/TYPE/NAME  the rules of all resources whose names begin with NAME

A node is
``{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read", "host":"*"}]}``.
Characters that ZooKeeper does not allow in a name (for example ``/``) are percent-encoded. Kafka could not
store such a name. Brokers watch these nodes themselves, and do not write Kafka's ``/kafka-acl-changes``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from urllib.parse import unquote

from barnabas.base.text import logger_of
from barnabas.kafka.security.acls import (
    ANY_PRINCIPAL,
    AclEntry,
    Operation,
    PatternRules,
    PatternType,
    Permission,
    ResourcePattern,
    ResourceType,
)

log = logger_of(__name__)


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


_TYPES: dict[ResourceType, str] = {
    kind: _camel(kind.name) for kind in ResourceType if kind is not ResourceType.ANY
}
_TYPES_BY_TEXT = {text: kind for kind, text in _TYPES.items()}
_OPERATIONS = {operation: _camel(operation.name) for operation in Operation}
_OPERATIONS_BY_TEXT = {text: operation for operation, text in _OPERATIONS.items()}
_PERMISSIONS_BY_TEXT = {_camel(permission.name): permission for permission in Permission}
_ROOTS = {PatternType.LITERAL: "/kafka-acl", PatternType.PREFIXED: "/kafka-acl-extended/prefixed"}

#: the folders that hold the nodes of rules
FOLDERS = tuple(f"{root}/{kind}" for root in _ROOTS.values() for kind in _TYPES.values())
#: every permanent node, parents first
ALL_FOLDERS = ("/kafka-acl", "/kafka-acl-extended", "/kafka-acl-extended/prefixed", *FOLDERS)

_PATH = re.compile(
    rf"(?P<root>{'|'.join(_ROOTS.values())})/(?P<type>{'|'.join(_TYPES_BY_TEXT)})/(?P<name>[^/]+)"
)
_PATTERNS_BY_ROOT = {root: pattern for pattern, root in _ROOTS.items()}
#: the characters that ZooKeeper allows in no name, and the sign that begins an encoded character
_UNSTORABLE = re.compile("[%/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def path(resource: ResourcePattern) -> str:
    """Return the path of the node that has the ACLs of a resource pattern."""
    name = _UNSTORABLE.sub(_encoded, resource.name)
    if name in (".", ".."):
        name = name.replace(".", "%2E")
    return f"{_ROOTS[resource.pattern]}/{_TYPES[resource.type]}/{name}"


def resource_of(path: str) -> ResourcePattern | None:
    """Return the resource pattern whose ACLs are at `path`; None if `path` is not the path of an ACL node."""
    match = _PATH.fullmatch(path)
    if match is None:
        return None
    pattern = _PATTERNS_BY_ROOT[match["root"]]
    return ResourcePattern(_TYPES_BY_TEXT[match["type"]], unquote(match["name"]), pattern)


def encode(entries: Iterable[AclEntry]) -> bytes:
    """Encode ACLs as the content of a node."""
    acls = [
        {
            "principal": entry.principal,
            "permissionType": _camel(entry.permission.name),
            "operation": _OPERATIONS[entry.operation],
            "host": entry.host,
        }
        for entry in entries
    ]
    return json.dumps({"version": 1, "acls": acls}, separators=(",", ":")).encode()


#: the rules in place of an unreadable node: to deny too much is safer than to deny too little
_CLOSED = PatternRules([AclEntry(ANY_PRINCIPAL, Permission.DENY, Operation.ALL)])


def decode(path: str, data: bytes) -> PatternRules:
    """Decode the ACLs of the node at `path`.

    If `data` is invalid, log an error and return a rule that denies every operation to everyone.
    """
    try:
        return PatternRules([_entry(acl) for acl in json.loads(data)["acls"]])
    except (ValueError, KeyError, TypeError) as error:
        log.error(
            "cannot read the ACLs at %s (%s: %s): only super users can use their resource",
            path,
            type(error).__name__,
            error,
        )
        return _CLOSED


def _entry(acl: dict[str, str]) -> AclEntry:
    return AclEntry(
        acl["principal"],
        _PERMISSIONS_BY_TEXT[acl["permissionType"]],
        _OPERATIONS_BY_TEXT[acl["operation"]],
        acl["host"],
    )


def _encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))
