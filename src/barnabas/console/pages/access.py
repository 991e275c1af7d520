"""The page of users, ACLs and quotas."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.client.acls import describe_acls
from barnabas.client.errors import ClientError, error_text
from barnabas.client.quotas import describe_quotas
from barnabas.console.pages.query import Query
from barnabas.console.rule_words import OPERATIONS
from barnabas.console.view import ClusterView
from barnabas.kafka.security.acls import AclFilter, PatternType, ResourceType

#: rows of each table
_MAX_ROWS = 500
_TIMEOUT_S = 10.0


def access(view: ClusterView, query: Query) -> dict[str, Any]:
    """Return the data of the access page: users, ACLs (``rules``), quotas, and the operations of resources.

    Query: with ``topic``, only the ACLs that apply to this topic, and the operations.
    """
    topic = query.get("topic", "")
    if topic:
        return {"rules": _part(lambda: _rules(view, topic)), "operations": OPERATIONS}
    return {
        "operations": OPERATIONS,
        "users": _part(lambda: _users(view)),
        "rules": _part(lambda: _rules(view)),
        "quotas": _part(lambda: _quotas(view)),
    }


def _part(read: Callable[[], list[dict[str, Any]]]) -> dict[str, Any]:
    """Call `read`, and return its rows as a table for the page.

    ``rows`` has the first `_MAX_ROWS` rows, ``count`` is the number of all rows, and ``problem`` is None. If
    `read` raises ClientError or KafkaError, ``rows`` is empty and ``problem`` is the text of the error.
    """
    try:
        rows = read()
    except (ClientError, KafkaError) as error:
        return {"rows": [], "count": 0, "problem": error_text(error)}
    return {"rows": rows[:_MAX_ROWS], "count": len(rows), "problem": None}


def _users(view: ClusterView) -> list[dict[str, Any]]:
    return [{"name": user, "mechanisms": list(known)} for user, known in view.admin.users().items()]


def _rules(view: ClusterView, topic: str = "") -> list[dict[str, Any]]:
    chosen = AclFilter(ResourceType.TOPIC, topic, PatternType.MATCH) if topic else AclFilter()
    return [
        {
            "principal": entry.principal,
            "permission": entry.permission.name,
            "operation": entry.operation.name,
            "resource": resource.type.name,
            "pattern": resource.pattern.name,
            "name": resource.name,
            "host": entry.host,
        }
        for resource, entry in describe_acls(view.servers, _TIMEOUT_S, chosen)
    ]


def _quotas(view: ClusterView) -> list[dict[str, Any]]:
    return [
        {"of": dict(entity), "name": name, "value": value}
        for entity, values in describe_quotas(view.servers, _TIMEOUT_S)
        for name, value in sorted(values.items())
    ]
