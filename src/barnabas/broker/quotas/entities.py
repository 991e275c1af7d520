"""Entities that have quotas, and the kinds of quotas."""

from __future__ import annotations

import math
from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias


class Default(Enum):
    """The name of an entity that represents all entities of a kind without a quota of their own."""

    DEFAULT = "<default>"


DEFAULT = Default.DEFAULT

#: a name or the default; None if the quota does not depend on this
Name: TypeAlias = str | Default | None


class QuotaEntity(NamedTuple):
    """The subject of a quota: a user, a client id, a user with a client id, or an address."""

    user: Name = None
    client_id: Name = None
    ip: Name = None


class QuotaKind(Enum):
    """The kinds of quotas. Each value is the name of Kafka's setting for this quota."""

    #: bytes a second that producers send, with all of their requests
    PRODUCE = "producer_byte_rate"
    #: bytes a second of records that consumers get
    FETCH = "consumer_byte_rate"
    #: percents of the event loop's time
    REQUEST = "request_percentage"
    #: partitions made and deleted a second
    MUTATION = "controller_mutation_rate"
    #: new connections a second
    CONNECTION = "connection_creation_rate"


#: kinds of quotas of addresses; all others are of users and client ids
OF_ADDRESSES = frozenset({QuotaKind.CONNECTION})


def limits_of(texts: Mapping[str, str]) -> dict[QuotaKind, float]:
    """Return the limits in the stored settings of an entity, by kind of quota.

    Values that are not a finite number of at least 0 are left out.
    """
    limits = {}
    for kind in QuotaKind:
        if kind.value in texts:
            try:
                limit = float(texts[kind.value])
            except ValueError:
                continue
            if math.isfinite(limit) and limit >= 0:
                limits[kind] = limit
    return limits
