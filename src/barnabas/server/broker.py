"""The composition root: one broker's parts, put together, started and stopped in order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.clock import Clock
from barnabas.config import BrokerConfig

if TYPE_CHECKING:
    from barnabas.controller import Controller
    from barnabas.coordinator import GroupCoordinator
    from barnabas.metadata import ClusterImage, MetadataStore
    from barnabas.replication import ReplicaManager
    from barnabas.storage import LogManager


class Broker:
    """What the handlers work on. Owned by one event loop: nothing here is touched from another thread."""

    config: BrokerConfig
    clock: Clock
    node_id: int
    cluster_id: str
    #: the latest cluster image; replaced whole, never changed
    image: ClusterImage
    store: MetadataStore
    #: the one writer of metadata (topics, configs, producer-id blocks)
    controller: Controller
    logs: LogManager
    replicas: ReplicaManager
    groups: GroupCoordinator
