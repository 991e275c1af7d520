"""Limits the number of groups and transactional ids that one principal can create (ADR 13)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, Protocol

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of, shown
from barnabas.broker.awaitables import MaybeAwaitable
from barnabas.broker.coordinator import GroupCoordinator, TransactionCoordinator
from barnabas.broker.server.requests.context import Handle, RequestContext
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.schema import Request, Response
from barnabas.kafka.security.principal import Principal

log = logger_of(__name__)

#: principals whose names are remembered
_MAX_PRINCIPALS = 5_000
#: number of names that are checked for existence before a new name is rejected
_CHECKED = 100


class NewNames:
    """Counts the names that each principal has created since the start of this broker, for example group ids.

    When a principal has too many names, the broker rejects its requests that would create another name. A
    principal can always use names that exist.

    Args:
        what: kind of the names, for messages.
        setting: name of the setting with the limit, for messages.
        limit: returns how many names one principal may create.
        exists: returns whether a name exists; None if this broker does not coordinate the name.
    """

    def __init__(
        self, what: str, setting: str, limit: Callable[[], int], exists: Callable[[str], bool | None]
    ) -> None:
        self._what = what
        self._setting = setting
        self._limit = limit
        self._exists = exists
        #: by principal, the names that were checked longest ago first
        self._names: dict[Principal, dict[str, None]] = {}
        self._warned: set[Principal] = set()

    def admit(self, principal: Principal, name: str) -> None:
        """Count a name that a principal is about to create.

        Do nothing if the name exists, or if this broker does not coordinate it.

        Raises:
            KafkaError: POLICY_VIOLATION, the principal already has the largest allowed number.
        """
        if self._exists(name) is not False:
            return
        names = self._names.get(principal)
        if names is None:
            if len(self._names) >= _MAX_PRINCIPALS:
                self._names.clear()
            names = self._names[principal] = {}
        if name in names:
            return
        limit = self._limit()
        if len(names) >= limit:
            self._forget_gone(names)
        if len(names) >= limit:
            if principal not in self._warned:
                self._warned.add(principal)
                log.warning(
                    "refusing %s of %s: it already created %d (%s)",
                    self._what,
                    shown(str(principal)),
                    len(names),
                    self._setting,
                )
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self._setting}={limit}: use existing {self._what}, or delete some",
            )
        self._warned.discard(principal)
        names[name] = None

    def _forget_gone(self, names: dict[str, None]) -> None:
        for _ in range(min(_CHECKED, len(names))):
            oldest = next(iter(names))
            del names[oldest]
            if self._exists(oldest):
                names[oldest] = None


class BoundedNames(Protocol):
    """A kind of names that requests can create, with a limit for each principal."""

    #: the field of a request that has the name
    named_by: ClassVar[str]
    names: NewNames


@dataclass(slots=True)
class NewGroups:
    """Limits the groups that each principal can create (``barnabas.groups.per.principal``)."""

    named_by: ClassVar[str] = "group_id"
    view: BrokerView
    groups: GroupCoordinator
    names: NewNames = field(init=False)

    def __post_init__(self) -> None:
        self.names = NewNames(
            "groups",
            "barnabas.groups.per.principal",
            lambda: self.view.config.barnabas_groups_per_principal,
            self.groups.has_group,
        )


@dataclass(slots=True)
class NewTransactionalIds:
    """Limits the transactional ids of each principal (``barnabas.transactional.ids.per.principal``)."""

    named_by: ClassVar[str] = "transactional_id"
    view: BrokerView
    transactions: TransactionCoordinator
    names: NewNames = field(init=False)

    def __post_init__(self) -> None:
        self.names = NewNames(
            "transactional ids",
            "barnabas.transactional.ids.per.principal",
            lambda: self.view.config.barnabas_transactional_ids_per_principal,
            self.transactions.has_transactional_id,
        )


def bounded(handle: Handle, bound: BoundedNames) -> Handle:
    """Return a handler that counts the name in each request, and then calls `handle`.

    If the principal has created too many names, the handler raises KafkaError POLICY_VIOLATION. It counts
    only names of principals that ACLs restrict.

    Args:
        handle: the handler of the API.
        bound: the kind of names. `bound.named_by` is the request's field with the name.
    """
    admit, named_by = bound.names.admit, bound.named_by

    def admit_and_handle(context: RequestContext, request: Request) -> MaybeAwaitable[Response | None]:
        name: str | None = getattr(request, named_by)
        if name and not context.access.is_unrestricted:
            admit(context.connection.principal, name)
        return handle(context, request)

    return admit_and_handle
