"""The brokers of a cluster, with those that are gone: a cluster lists only brokers that live."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from barnabas.client.addresses import Address
from barnabas.client.brokers import Brokers


class Member(NamedTuple):
    """A broker that lives, or that is gone and still holds replicas.

    Attributes:
        address: HOST:PORT; None for a broker that was gone before the console could see it.
    """

    id: int
    address: str | None
    rack: str | None
    is_gone: bool


def members_of(brokers: Brokers, metadata: Any, holders: Iterable[int] | None = None) -> list[Member]:
    """All brokers by their ids.

    Args:
        metadata: of all topics, whose replicas name the brokers that are gone.
        holders: the brokers that hold replicas, where the caller knows them already.
    """
    alive = {b.node_id: Member(b.node_id, f"{b.host}:{b.port}", b.rack, False) for b in metadata.brokers}
    if holders is None:
        holders = {n for topic in metadata.topics for p in topic.partitions for n in p.replica_nodes}
    gone = {n: Member(n, _told(brokers.address_of(n)), None, True) for n in holders if n not in alive}
    return [member for _, member in sorted((alive | gone).items())]


def _told(address: Address | None) -> str | None:
    return None if address is None else f"{address.host}:{address.port}"
