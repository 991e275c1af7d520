"""The parts that handlers name, instead of a whole broker."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields, is_dataclass
from types import NoneType
from typing import Any, get_args, get_type_hints

from barnabas.broker.controller import AutoCreation, Controller
from barnabas.broker.logins.delegation_tokens import TokenKeys
from barnabas.broker.metadata import MetadataLoader
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.fetching.read_index import ReadIndex
from barnabas.broker.server.handlers import load
from barnabas.broker.server.requests.api import ServedApis
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.kafka.security.acls import Authorizer


def stand_in(kind: Any) -> Any:
    """Return an object of a type that does nothing. Handlers only need to find it."""
    made: Any = type(kind)(kind.__name__, (kind,), {"controls": ()})
    made.__abstractmethods__ = frozenset()
    return object.__new__(made)


#: parts that `served_apis` makes or takes from the controller
_MADE = {AutoCreation, Dispatcher, ServedApis}
#: parts that some brokers lack
_OPTIONAL = {Authorizer, TokenKeys, NoneType}


def required() -> set[Any]:
    """Return the types of the parts that a broker needs to serve."""
    found = {ReadIndex, MetadataLoader, AuditTrail, LongWork}
    for api in load().values():
        for kind in [*api.parts, *([api.new_names] if api.new_names else ())]:
            found |= {*_leaves(kind)}
    return found - _MADE - _OPTIONAL


def others_than(parts: Sequence[object]) -> list[Any]:
    """Return stand-ins for the required parts that are not among `parts`."""
    controls = [control for part in parts if isinstance(part, Controller) for control in part.controls]
    given = (*parts, *controls)
    missing = (kind for kind in required() if not any(isinstance(part, kind) for part in given))
    return [stand_in(kind) for kind in missing]


def _leaves(kind: Any) -> Iterator[Any]:
    if is_dataclass(kind):
        types = get_type_hints(kind)
        for field in fields(kind):
            if field.init:
                yield from _leaves(types[field.name])
    else:
        yield from get_args(kind) or (kind,)
