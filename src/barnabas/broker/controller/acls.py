"""Creates and deletes ACLs (KIP-140)."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import acl_nodes
from barnabas.broker.metadata.store import Create, Delete, Operation, Set
from barnabas.kafka.security.acls import AclBinding, AclEntry, AclFilter, Acls, ResourcePattern

#: the most rules of one resource pattern: one node of the store contains them
MAX_RULES = 5000
#: how many resource patterns are checked in one turn of the event loop
_AT_ONCE = 500


class AclControl:
    """The part of the controller that creates and deletes ACLs."""

    def __init__(self, writes: ControllerWrites) -> None:
        self._writes = writes

    async def create(self, rules: Sequence[AclBinding]) -> dict[AclBinding, KafkaError]:
        """Create ACLs. Return the rejected ones with their errors.

        For each resource pattern, all ACLs are created or none. An ACL that exists already is not rejected.
        The error is INVALID_REQUEST if the pattern would have more than `MAX_RULES` ACLs. If the write of a
        pattern fails, its ACLs have the error of this write.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR.
        """
        async with self._writes.answering() as image:
            acls = image.acls
            wanted: dict[ResourcePattern, dict[AclEntry, None]] = {}
            for resource, entry in rules:
                if resource not in wanted:
                    wanted[resource] = dict.fromkeys(_entries(acls, resource))
                wanted[resource][entry] = None
            writes: dict[ResourcePattern, list[Operation]] = {}
            errors: dict[ResourcePattern, KafkaError] = {}
            for resource, entries in wanted.items():
                if len(entries) > MAX_RULES:
                    errors[resource] = KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"{resource.type.name} '{resource.name}' has more than {MAX_RULES} rules",
                    )
                elif len(entries) > len(_entries(acls, resource)):
                    writes[resource] = _write(acls, resource, entries)
            errors |= await self._writes.write_each(writes)
            return {rule: errors[rule.resource] for rule in rules if rule.resource in errors}

    async def delete(
        self, filters: Sequence[AclFilter]
    ) -> tuple[list[list[AclBinding]], dict[ResourcePattern, KafkaError]]:
        """Delete the ACLs that match filters.

        Return the ACLs that each filter matches, in the order of `filters`, and an error for each resource
        pattern whose ACLs were not deleted. The event loop can run other tasks after each few hundred ACLs.

        Raises:
            KafkaError: NOT_CONTROLLER; KAFKA_STORAGE_ERROR.
        """
        async with self._writes.answering() as image:
            acls = image.acls
            selected = [await _select(acls, each) for each in filters]
            gone: dict[ResourcePattern, set[AclEntry]] = {}
            for rules in selected:
                for number, (resource, entry) in enumerate(rules, 1):
                    gone.setdefault(resource, set()).add(entry)
                    if number % _AT_ONCE == 0:
                        await asyncio.sleep(0)
            writes: dict[ResourcePattern, list[Operation]] = {}
            errors: dict[ResourcePattern, KafkaError] = {}
            for number, (resource, entries) in enumerate(gone.items(), 1):
                left = [entry for entry in _entries(acls, resource) if entry not in entries]
                writes[resource] = _write(acls, resource, left)
                if number % _AT_ONCE == 0:
                    errors |= await self._writes.write_each(writes)
                    writes.clear()
            errors |= await self._writes.write_each(writes)
            return selected, errors


async def _select(acls: Acls, chosen: AclFilter) -> list[AclBinding]:
    if chosen.exact is not None:
        patterns: Collection[ResourcePattern] = [chosen.exact]
    else:
        patterns = acls.rules
    found: list[AclBinding] = []
    for number, resource in enumerate(patterns, 1):
        if chosen.selects_resource(resource):
            entries = _entries(acls, resource)
            found += [AclBinding(resource, entry) for entry in entries if chosen.selects_entry(entry)]
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
    # The same at every run where there are few; where there are many, sorting would hold the loop.
    return sorted(found) if len(found) <= _AT_ONCE else found


def _entries(acls: Acls, resource: ResourcePattern) -> tuple[AclEntry, ...]:
    rules = acls.rules.get(resource)
    return () if rules is None else rules.entries


def _write(acls: Acls, resource: ResourcePattern, entries: Collection[AclEntry]) -> list[Operation]:
    path = acl_nodes.path(resource)
    if resource not in acls.rules:
        return [Create(path, acl_nodes.encode(entries))]
    return [Set(path, acl_nodes.encode(entries)) if entries else Delete(path)]
