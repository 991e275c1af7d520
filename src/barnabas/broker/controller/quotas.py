"""Changes the quotas of users, client ids and addresses (KIP-546, KIP-612)."""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config.declaration import INT_MAX, LONG_MAX
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import Create, DamagedNodeError, Delete, Operation, Set
from barnabas.broker.quotas import QuotaEntity, QuotaKind
from barnabas.broker.quotas.entities import OF_ADDRESSES

#: the longest name of a user or a client id, in bytes
_MAX_NAME_LENGTH = 256
_WHOLE = frozenset({QuotaKind.PRODUCE, QuotaKind.FETCH, QuotaKind.CONNECTION})
#: how far a whole number may be off, as in Kafka: it comes as a double
_EPSILON = 1e-6


class QuotaChange(NamedTuple):
    """A change of one quota: its name, for example ``producer_byte_rate``, and its new value.

    The value None removes the quota.
    """

    key: str
    value: float | None


class QuotaControl:
    """The part of the controller that changes the quotas of clients.

    The quotas of a user are in the same node as the user's credentials, which do not change.
    """

    def __init__(self, writes: ControllerWrites) -> None:
        self._writes = writes

    async def alter(
        self, changes: Mapping[QuotaEntity, Sequence[QuotaChange]], *, validate_only: bool = False
    ) -> dict[QuotaEntity, KafkaError]:
        """Change quotas of users, client ids and addresses. Return the error of each unchanged entity.

        All changes of an entity are made, or none. The error is INVALID_REQUEST for a change that is not
        allowed. One transaction changes all entities of the same user. If the write fails, all these entities
        have its error. With `validate_only`, the changes are only checked: the result has the entities with a
        change that is not allowed.

        Raises:
            KafkaError: NOT_CONTROLLER, this broker is not the controller; KAFKA_STORAGE_ERROR, the metadata
                store cannot be read.
        """
        async with self._writes.answering() as image:
            errors: dict[QuotaEntity, KafkaError] = {}
            changed: dict[QuotaEntity, dict[str, str]] = {}
            for entity, wanted in changes.items():
                try:
                    _check_entity(entity)
                    changed[entity] = _changed(entity, image.client_quotas.get(entity, {}), wanted)
                except KafkaError as error:
                    errors[entity] = error
            if validate_only or not changed:
                return errors
            groups: dict[QuotaEntity, dict[QuotaEntity, dict[str, str]]] = {}
            for entity, texts in changed.items():
                together = entity if entity.user is None else QuotaEntity(entity.user)
                groups.setdefault(together, {})[entity] = texts
            writes, failures = {}, {}
            for together, group in groups.items():
                try:
                    writes[together] = await self._operations(group)
                except DamagedNodeError as error:
                    failures[together] = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
            failures |= await self._writes.write_each(writes)
            for together, failure in failures.items():
                errors |= dict.fromkeys(groups[together], failure)
            return errors

    async def _operations(self, group: Mapping[QuotaEntity, Mapping[str, str]]) -> list[Operation]:
        """Return the operations that store the quotas in `group`.

        This method itself reads the present nodes of the entities, and writes nothing. For each entity,
        `group` has all quotas after the change, as text by name; a quota that `group` lacks is removed. All
        entities in `group` must have the same user. An entity without a user must be the only one.

        Raises:
            DamagedNodeError: the other settings of an entity cannot be decoded.
        """
        paths = [znodes.quota_config(entity) for entity in group]
        parents = _parents(group)
        nodes = await self._writes.read([*parents, *paths])
        operations: list[Operation] = []
        made = set()
        for path, node in zip(parents, nodes, strict=False):
            if node is None:
                operations.append(Create(path))
                made.add(path)
        for path, node, texts in zip(paths, nodes[len(parents) :], group.values(), strict=True):
            stored = {} if node is None else znodes.decoded(path, znodes.decode_config, node.data)
            others = {name: text for name, text in stored.items() if name not in _KEYS}
            data = znodes.encode_config(others | dict(texts))
            if node is None and path not in made:
                operations += [Create(path, data)] if texts else []
            elif others or texts or _may_have_children(path):
                operations.append(Set(path, data))
            else:
                operations.append(Delete(path))
        return operations


_KEYS = {kind.value: kind for kind in QuotaKind}


def _parents(group: Mapping[QuotaEntity, object]) -> list[str]:
    """Return the paths of the parent nodes that the entities in `group` need.

    Only an entity with a user and a client id needs parent nodes. Some of the nodes may exist already.
    """
    users = {
        entity.user: None for entity in group if entity.user is not None and entity.client_id is not None
    }
    return [
        path for user in users for path in (znodes.quota_config(QuotaEntity(user)), znodes.user_clients(user))
    ]


def _may_have_children(path: str) -> bool:
    entity = znodes.quota_entity(path)
    return entity is not None and entity.user is not None and entity.client_id is None


def _check_entity(entity: QuotaEntity) -> None:
    names = [name for name in entity if name is not None]
    if not names:
        raise _refuse("a quota is for a user, a client id, both, or an address: name one of these")
    if entity.ip is not None and len(names) > 1:
        raise _refuse("a quota for an address cannot also name a user or a client id")
    for name in names:
        if isinstance(name, str) and not 1 <= len(name.encode()) <= _MAX_NAME_LENGTH:
            raise _refuse(f"the name of a user or a client id has 1 to {_MAX_NAME_LENGTH} bytes")
    if isinstance(entity.ip, str):
        try:
            ipaddress.ip_address(entity.ip)
        except ValueError:
            raise _refuse(f"'{entity.ip}' is not an address: write one such as 192.0.2.7") from None


def _changed(
    entity: QuotaEntity, before: Mapping[str, str], changes: Sequence[QuotaChange]
) -> dict[str, str]:
    texts = dict(before)
    if len({change.key for change in changes}) < len(changes):
        raise _refuse("the request changes a quota twice")
    for change in changes:
        if change.value is None:  # also of a quota that does not exist, as in Kafka
            texts.pop(change.key, None)
            continue
        kind = _KEYS.get(change.key)
        if kind is None or (kind in OF_ADDRESSES) is not (entity.ip is not None):
            whose = "an address" if entity.ip is not None else "a user or a client id"
            raise _refuse(f"there is no quota '{change.key}' of {whose}")
        texts[change.key] = _text(kind, change.value)
    return texts


def _text(kind: QuotaKind, value: float) -> str:
    if not (math.isfinite(value) and value > 0):
        raise _refuse(f"{kind.value}={value} is not allowed: it must be more than 0")
    if kind not in _WHOLE:
        return repr(value)
    if abs(value - round(value)) > _EPSILON or round(value) < 1:
        raise _refuse(f"{kind.value}={value} is not allowed: it must be a whole number")
    maximum = INT_MAX if kind is QuotaKind.CONNECTION else LONG_MAX
    if value > maximum:
        raise _refuse(f"{kind.value}={value} is not allowed: it must be at most {maximum}")
    return str(round(value))


def _refuse(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, message)
