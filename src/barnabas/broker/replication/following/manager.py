"""Decides which partitions to copy, from which leader and in which leader epoch."""

from __future__ import annotations

import asyncio

from barnabas.base.types import NO_BROKER, BrokerId
from barnabas.broker.interbroker import BrokerClient
from barnabas.broker.replication.following.fetch_session import Key
from barnabas.broker.replication.following.fetcher import Dependencies, Logs, ReplicaFetcher
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.throttles import Throttle
from barnabas.broker.view import BrokerView


class Following:
    """Copies the partitions that this broker follows, with one fetcher for each leader.

    Args:
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        peers: channels to the other brokers.
        logs: makes truncations and log starts durable.
        throttle: throttle of the fetched bytes (KIP-73).
    """

    def __init__(self, view: BrokerView, peers: BrokerClient, logs: Logs, throttle: Throttle) -> None:
        self._dependencies = Dependencies(view, peers, logs, throttle)
        self._fetchers: dict[BrokerId, ReplicaFetcher] = {}
        #: the leader whose fetcher copies each partition
        self._leaders: dict[Key, BrokerId] = {}
        self._is_stopped = False

    def partition_changed(self, partition: Partition) -> None:
        """Start, change or stop the copying of a partition that was opened or deleted, or has a new state."""
        if self._is_stopped:
            return
        key = (partition.log.topic_id, partition.topic_partition.partition)
        leader, own_id = partition.state.leader, self._dependencies.view.node_id
        if partition.is_leader or partition.unavailable is not None or leader == own_id:
            leader = NO_BROKER
        before = self._leaders.get(key, NO_BROKER)
        if before not in (NO_BROKER, leader):
            self._fetchers[before].unfollow(key)
            del self._leaders[key]
        if leader == NO_BROKER:
            return
        self._leaders[key] = leader
        fetcher = self._fetchers.get(leader)
        if fetcher is None:
            fetcher = self._fetchers[leader] = ReplicaFetcher(leader, self._dependencies)
        fetcher.follow(partition)

    async def stop(self) -> None:
        """Stop all fetchers at once. Later calls of `partition_changed` do nothing."""
        self._is_stopped = True
        await asyncio.gather(*(fetcher.close() for fetcher in self._fetchers.values()))
