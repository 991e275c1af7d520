"""Builds the table of served APIs, and gives each handler its dependencies."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

from barnabas.broker.controller import AutoCreation, Controller
from barnabas.broker.metadata import MetadataLoader
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.auditing.watch import Denials, changes_audited
from barnabas.broker.server.fetching.read_index import ReadIndex
from barnabas.broker.server.forwarding import Forwarding
from barnabas.broker.server.handlers import load
from barnabas.broker.server.requests.api import Api, Served, ServedApis
from barnabas.broker.server.requests.authorized import authorized, logged_in_only
from barnabas.broker.server.requests.confirmed import confirmed
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.new_names import bounded
from barnabas.broker.server.requests.parts import Parts
from barnabas.broker.view import BrokerView
from barnabas.kafka.security.acls import Authorizer

#: time limit for the creation of a missing topic, in seconds; clients retry later
_AUTO_CREATION_SECONDS = 2.0

_APIS = load()


@dataclass(frozen=True, slots=True)
class _Common:
    """The parts of the broker that the wrappers around the handlers need."""

    view: BrokerView
    loader: MetadataLoader
    controller: Controller
    read_index: ReadIndex
    forwarding: Forwarding
    long_work: LongWork
    trail: AuditTrail
    authorizer: Authorizer | None


def served_apis(parts: Iterable[object]) -> ServedApis:
    """Return all APIs, with handlers that use these parts of a broker.

    Raises:
        TypeError: a handler requires a part that is missing, or that exists more than once.
    """
    table = ServedApis()
    found = Parts([*parts, table])
    common = found.get(_Common)
    forwarding = common.forwarding
    found.add(
        *common.controller.controls,
        AutoCreation(common.view, partial(forwarding.send, timeout_s=_AUTO_CREATION_SECONDS)),
        Dispatcher(forwarding.local, common.long_work),
    )
    table.update((key, _served(api, found, common)) for key, api in _APIS.items())
    return table


def _served(api: Api[Any], found: Parts, common: _Common) -> Served:
    """Return an API with its handler, wrapped in all checks that the API declares.

    For each request, the check that this function adds last runs first.

    Args:
        api: the declaration of the API.
        found: finds the parts of the broker that the handler requires.
        common: the parts of the broker that the checks require.

    Raises:
        TypeError: the handler requires a part that is missing, or that exists more than once.
    """
    own = api.using(*(found.of(kind, api.name) for kind in api.parts))
    handle = own.handle
    if api.confirmed_by is not None:
        partitions_of = api.confirmed_by.partitions_of(found)
        refusal = api.confirmed_by.refusal
        handle = confirmed(handle, common.loader, common.read_index, partitions_of, refusal)
    if api.new_names is not None and common.authorizer is not None:
        handle = bounded(handle, found.get(api.new_names, api.name))
    served = Served(api, handle, own.direct)
    if common.authorizer is not None:
        served = authorized(served, common.authorizer, common.view, Denials(common.trail))
    if api.is_forwarded:
        served = common.forwarding.forwarded(served)  # the controller authorises the request
    if api.needs_login:
        served = Served(api, logged_in_only(served.handle))
    return changes_audited(served, common.trail)
