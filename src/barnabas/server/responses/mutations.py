"""How many partitions a request may make and delete (KIP-599)."""

from __future__ import annotations

import math

from barnabas.errors import ErrorCode, KafkaError
from barnabas.security import ITSELF
from barnabas.security.quotas import ClientQuotas, Mutations
from barnabas.server.requests.context import RequestContext


class MutationBudget:
    """What is left to one request of what its client may make and delete; what a broker asks has no limit.

    Args:
        quotas: what clients may use.
        context: the request's.
        strict_since: the first version of the API that knows THROTTLING_QUOTA_EXCEEDED.
        validate_only: whether nothing is made.
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
        """Count so many partitions. Raises KafkaError THROTTLING_QUOTA_EXCEEDED when they are too many."""
        if self._left is not None and not self._left.admit(partitions):
            raise KafkaError(
                ErrorCode.THROTTLING_QUOTA_EXCEEDED,
                "the client has made and deleted more partitions than its controller_mutation_rate allows",
            )

    @property
    def throttle_time_ms(self) -> int:
        """For how long the client is to ask for nothing more."""
        return 0 if self._left is None else math.ceil(1000 * self._left.delay())
