"""All rules of a cluster, indexed by resource. The value is immutable; a change makes a new one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from immutables import Map

from barnabas.kafka.security.acls.model import (
    ANY_NAME,
    ANY_PRINCIPAL,
    AclBinding,
    AclEntry,
    PatternType,
    ResourcePattern,
    ResourceType,
    canonical_host,
)


class PatternRules:
    """The entries of one resource pattern, indexed by principal."""

    __slots__ = ("_by_principal", "entries")

    def __init__(self, entries: Iterable[AclEntry]) -> None:
        self.entries = tuple(dict.fromkeys(entries))
        by_principal: dict[str, list[tuple[AclEntry, str]]] = {}
        for entry in self.entries:
            by_principal.setdefault(entry.principal, []).append((entry, canonical_host(entry.host)))
        self._by_principal = by_principal

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PatternRules) and self.entries == other.entries

    def __hash__(self) -> int:
        return hash(self.entries)

    @property
    def principals(self) -> set[str]:
        """Return the principals that the entries name."""
        return set(self._by_principal)

    def of(self, principal: str) -> Iterator[tuple[AclEntry, str]]:
        """Yield the entries for a principal or for all principals, each with its host in canonical form."""
        yield from self._by_principal.get(principal, ())
        if principal != ANY_PRINCIPAL:
            yield from self._by_principal.get(ANY_PRINCIPAL, ())


_NO_RULES: Map[ResourcePattern, PatternRules] = Map()
_NO_LENGTHS: Map[tuple[ResourceType, int], int] = Map()
_NO_PATTERNS: Map[ResourcePattern, None] = Map()
_NO_PRINCIPALS: Map[str, Map[ResourcePattern, None]] = Map()


class Acls:
    """The rules (ACLs) by resource pattern.

    For a decision about the resource ``orders``, the authorizer reads the rules of the patterns ``orders``
    and ``*``, and of prefixed patterns such as ``ord``. If all prefixed patterns have 3 or 4 characters, for
    example, it looks up only ``ord`` and ``orde``. So the cost does not grow with the number of rules.
    """

    __slots__ = ("_by_principal", "_lengths", "_lengths_of", "rules")

    def __init__(
        self,
        rules: Map[ResourcePattern, PatternRules] = _NO_RULES,
        lengths: Map[tuple[ResourceType, int], int] = _NO_LENGTHS,
        by_principal: Map[str, Map[ResourcePattern, None]] = _NO_PRINCIPALS,
    ) -> None:
        self.rules = rules
        #: the patterns with a rule that names a principal
        self._by_principal = by_principal
        #: how many prefixed patterns of a type have a length
        self._lengths = lengths
        self._lengths_of: dict[ResourceType, list[int]] = {}
        for kind, length in lengths:
            self._lengths_of.setdefault(kind, []).append(length)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Acls) and self.rules == other.rules

    def __hash__(self) -> int:
        return hash(self.rules)

    @classmethod
    def of(cls, bindings: Iterable[AclBinding]) -> Acls:
        """Return an `Acls` with these rules."""
        entries: dict[ResourcePattern, list[AclEntry]] = {}
        for resource, entry in bindings:
            entries.setdefault(resource, []).append(entry)
        return cls().changed({resource: PatternRules(each) for resource, each in entries.items()})

    def changed(self, patterns: Mapping[ResourcePattern, PatternRules | None]) -> Acls:
        """Return a copy that replaces the rules of these patterns; None removes a pattern's rules."""
        rules, lengths = self.rules.mutate(), self._lengths.mutate()
        by_principal = self._by_principal.mutate()
        for resource, new in patterns.items():
            old = rules.get(resource)
            had, has = old is not None, new is not None and bool(new.entries)
            before = set() if old is None else old.principals
            after = set() if new is None else new.principals
            for principal in before - after:
                left = by_principal[principal].delete(resource)
                if left:
                    by_principal[principal] = left
                else:
                    del by_principal[principal]
            for principal in after - before:
                by_principal[principal] = by_principal.get(principal, _NO_PATTERNS).set(resource, None)
            if has:
                rules[resource] = new  # type: ignore[assignment]
            elif had:
                del rules[resource]
            if resource.pattern is PatternType.PREFIXED and had != has:
                key = resource.type, len(resource.name)
                count = lengths.get(key, 0) + (1 if has else -1)
                if count:
                    lengths[key] = count
                else:
                    del lengths[key]
        return Acls(rules.finish(), lengths.finish(), by_principal.finish())

    def about(self, kind: ResourceType, name: str) -> Iterator[tuple[ResourcePattern, PatternRules]]:
        """Yield each pattern that selects the resource `name` of the type `kind`, and the pattern's rules."""
        for resource in self._patterns(kind, name):
            rules = self.rules.get(resource)
            if rules is not None:
                yield resource, rules

    def naming(self, principal: str) -> Iterator[tuple[ResourcePattern, PatternRules]]:
        """Yield the patterns with a rule for a principal or for all principals, each with all its rules."""
        mine = self._by_principal.get(principal, _NO_PATTERNS)
        everybody = self._by_principal.get(ANY_PRINCIPAL, _NO_PATTERNS)
        for resource in mine:
            yield resource, self.rules[resource]
        for resource in everybody:
            if resource not in mine:
                yield resource, self.rules[resource]

    def _patterns(self, kind: ResourceType, name: str) -> Iterator[ResourcePattern]:
        yield ResourcePattern(kind, name)
        if name != ANY_NAME:
            yield ResourcePattern(kind, ANY_NAME)
        for length in self._lengths_of.get(kind, ()):
            if length <= len(name):
                yield ResourcePattern(kind, name[:length], PatternType.PREFIXED)
