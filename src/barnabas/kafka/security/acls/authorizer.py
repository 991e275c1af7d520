"""Decides about the permissions of connected clients, and caches decisions until the rules change."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping

from barnabas.kafka.security.acls.acls import Acls
from barnabas.kafka.security.acls.decision import SubjectRules, decide, decide_any
from barnabas.kafka.security.acls.model import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Operation,
    ResourceType,
    canonical_host,
)
from barnabas.kafka.security.principal import ITSELF, Principal

#: decisions that are remembered for one principal at one host
_MAX_DECISIONS = 10_000
#: principals at hosts that are remembered
_MAX_ACCESSES = 5_000


_ALL_OPERATIONS = {
    kind: sum(1 << operation for operation in operations) for kind, operations in SUPPORTED_OPERATIONS.items()
}


class Access:
    """The permissions of a connection.

    This base class allows everything. It is used for super users, for the broker itself, and in clusters
    without an authorizer. A subclass applies the rules.
    """

    #: whether everything is allowed, so that callers can skip their checks
    is_unrestricted = True
    #: the number of operations that were not allowed
    refusals = 0
    #: by operation and type, names on which `allows` has found it allowed; true right after `catch_up`
    known: Mapping[tuple[Operation, ResourceType], Container[str]] = {}
    #: rules of the cached decisions; None if there are no rules
    acls: Acls | None = None

    def catch_up(self) -> None:
        """Clear the cached decisions in `known` if the ACLs have changed since the last call.

        `Access` allows everything, so here the method does nothing. A subclass with ACLs overrides it.
        """

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether an operation on the resource `name` of the type `kind` is allowed."""
        return True

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether an operation is allowed on at least one possible resource of a type (KIP-679)."""
        return True

    def on_cluster(self, operation: Operation) -> bool:
        """Whether an operation on the cluster is allowed."""
        return self.allows(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def on_topic(self, operation: Operation, topic: str) -> bool:
        """Whether an operation on a topic is allowed."""
        return self.allows(operation, ResourceType.TOPIC, topic)

    def on_group(self, operation: Operation, group_id: str) -> bool:
        """Whether an operation on a group is allowed."""
        return self.allows(operation, ResourceType.GROUP, group_id)

    def on_transactional_id(self, operation: Operation, transactional_id: str) -> bool:
        """Whether an operation on a transactional id is allowed."""
        return self.allows(operation, ResourceType.TRANSACTIONAL_ID, transactional_id)

    def cluster_operations(self) -> int:
        """Return the operations allowed on the cluster, as in `operations`; 0 if DESCRIBE is not allowed."""
        if not self.on_cluster(Operation.DESCRIBE):
            return 0
        return self.operations(ResourceType.CLUSTER, CLUSTER_NAME)

    def operations(self, kind: ResourceType, name: str) -> int:
        """Return the operations allowed on the resource `name` of the type `kind`, as a bit set.

        Bit `n` is operation `n` (KIP-430).
        """
        return _ALL_OPERATIONS[kind]


#: without an authorizer, and of the broker itself
UNRESTRICTED = Access()


class _RestrictedAccess(Access):
    """The permissions of one principal at one host, by the latest rules."""

    is_unrestricted = False

    def __init__(
        self, acls: Callable[[], Acls], subjects: SubjectRules, principal: Principal, host: str
    ) -> None:
        self._latest = acls
        self._subjects = subjects
        self._principal = str(principal)
        self._host = canonical_host(host)
        self.acls: Acls = acls()
        self.known: dict[tuple[Operation, ResourceType], set[str]] = {}
        self._refused: dict[tuple[Operation, ResourceType], set[str]] = {}
        self._allowed_any: dict[tuple[Operation, ResourceType], bool] = {}
        #: how many names `known` and `_refused` have
        self._decisions = 0

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        if self.acls is not self._latest():
            self.catch_up()
        key = operation, kind
        if name in self.known.get(key, ()):
            return True
        if name not in self._refused.get(key, ()):
            decision = decide(self.acls, self._subjects, self._principal, self._host, operation, kind, name)
            if self._decisions >= _MAX_DECISIONS:
                self._forget()
            names = self.known if decision.is_allowed else self._refused
            names.setdefault(key, set()).add(name)
            self._decisions += 1
            if decision.is_allowed:
                return True
        self.refusals += 1
        return False

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        self.catch_up()
        key = operation, kind
        allowed = self._allowed_any.get(key)
        if allowed is None:
            allowed = decide_any(self.acls, self._subjects, self._principal, self._host, operation, kind)
            self._allowed_any[key] = allowed
        if not allowed:
            self.refusals += 1
        return allowed

    def operations(self, kind: ResourceType, name: str) -> int:
        return sum(
            1 << operation for operation in SUPPORTED_OPERATIONS[kind] if self.allows(operation, kind, name)
        )

    def catch_up(self) -> None:
        """Clear the cached decisions if the rules have changed."""
        latest = self._latest()
        if self.acls is not latest:
            self.acls = latest
            self._forget()

    def _forget(self) -> None:
        self.known.clear()
        self._refused.clear()
        self._allowed_any.clear()
        self._decisions = 0


class Authorizer:
    """Returns the permissions of clients, by the rules of the latest cluster image.

    Args:
        acls: returns the current access control lists.
        subjects: the super users, and the default for resources without entries.
    """

    def __init__(self, acls: Callable[[], Acls], subjects: SubjectRules) -> None:
        #: returns the current access control lists
        self.acls = acls
        self._subjects = subjects
        self._accesses: dict[tuple[Principal, str], Access] = {}

    def access(self, principal: Principal, host: str) -> Access:
        """Return the permissions of a principal at a host (an IP address).

        The returned object applies later changes of the rules, too: callers may keep it.
        """
        key = principal, host
        access = self._accesses.get(key)
        if access is None:
            if principal == ITSELF:
                return UNRESTRICTED
            if str(principal) in self._subjects.super_users:
                access = UNRESTRICTED
            else:
                access = _RestrictedAccess(self.acls, self._subjects, principal, host)
            if len(self._accesses) >= _MAX_ACCESSES:
                self._accesses.clear()
            self._accesses[key] = access
        if access.acls is not self.acls():
            access.catch_up()
        return access
