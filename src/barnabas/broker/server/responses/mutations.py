"""Limits how many partitions (KIP-599), settings, ACLs or quotas one request can change."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.quotas import ClientQuotas, Mutations
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.pieces import count_along
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.security.principal import ITSELF

MAX_CHANGES = 10_000
"""Largest number of changes in one request.

It is that of Apache Kafka (``QuorumController.MAX_RECORDS_PER_USER_OP``).

Each change is a write to the metadata store: 25,000 settings took five seconds of CPU time.
"""


def limit_changes(*path: str) -> Callable[[Any], None]:
    """Return a function that rejects a request with too many changes.

    For each name in `path`, the function counts the elements in all arrays of this name in the request. If
    the number is above `MAX_CHANGES`, it raises KafkaError POLICY_VIOLATION. Then the broker executes no part
    of the request, as in Apache Kafka.

    For example, `limit_changes("resources", "configs")` limits the number of resources. It also limits the
    number of configs of all resources together.

    Args:
        path: names of array fields. The first is a field of the request, and each other one is a field in the
            elements of the array before it.
    """

    def check(request: Request) -> None:
        above = 0
        for depth, name in enumerate(path, 1):
            count = count_along(request, path[:depth]) - above
            above += count
            if count > MAX_CHANGES:
                raise KafkaError(
                    ErrorCode.POLICY_VIOLATION,
                    f"{count} {name} in one request, {MAX_CHANGES} are allowed: send several requests",
                )

    return check


class MutationBudget:
    """Applies the client's quota ``controller_mutation_rate`` to one request (KIP-599).

    The quota limits how many partitions the client creates and deletes. Requests of the broker itself, and
    requests that only validate, have no limit.

    Args:
        quotas: quotas of clients.
        context: context of the request.
        strict_since: first version of the API that knows THROTTLING_QUOTA_EXCEEDED. In earlier versions,
            `spend` charges the quota and never rejects: the client waits after the response.
        validate_only: whether the request only validates.
    """

    def __init__(
        self, quotas: ClientQuotas, context: RequestContext, *, strict_since: int, validate_only: bool = False
    ) -> None:
        self._left: Mutations | None = None
        principal = context.connection.principal
        if not validate_only and not quotas.is_idle and principal != ITSELF:
            self._left = quotas.mutations(
                principal.name, context.client_id or "", strict=context.api_version >= strict_since
            )

    def spend(self, partitions: int) -> None:
        """Charge this number of partitions, to be created or deleted, to the client's quota.

        Raises:
            KafkaError: THROTTLING_QUOTA_EXCEEDED, the quota is used up. Nothing is charged then. Requests
                before version `strict_since` do not get this error.
        """
        if self._left is not None and not self._left.admit(partitions):
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "the client has created and deleted more partitions than its controller_mutation_rate allows",
            )

    @property
    def throttle_time_ms(self) -> int:
        """Time that the client must wait before its next request, in milliseconds."""
        return 0 if self._left is None else math.ceil(1000 * self._left.delay())
