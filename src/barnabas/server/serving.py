"""The table of what a broker serves: each handler with the parts that it works on."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.config import BrokerConfig
from barnabas.controller import AutoCreation, Controller
from barnabas.coordinator import GroupCoordinator, ProducerIds, TransactionCoordinator
from barnabas.environment.clock import Clock
from barnabas.logs.manager import LogManager
from barnabas.metadata import ClusterImage
from barnabas.metadata.configs import ConfigResolver
from barnabas.replication.manager import ReplicaManager
from barnabas.server.fetching.sessions import FetchSessions
from barnabas.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    alter_configs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_partitions,
    create_topics,
    delete_groups,
    delete_records,
    delete_topics,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    end_txn,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    txn_offset_commit,
    update_features,
    write_txn_markers,
)
from barnabas.server.requests.api import Served
from barnabas.server.requests.long_work import LongWork
from barnabas.server.responses.config_listing import SettingDescriptions
from barnabas.server.responses.topics import TopicAnswers
from barnabas.server.transactions.guard import TransactionGuard
from barnabas.server.transactions.markers import MarkerAppender
from barnabas.types import BrokerId


def served_apis(
    *,
    node_id: BrokerId,
    config: Callable[[], BrokerConfig],
    image: Callable[[], ClusterImage],
    clock: Clock,
    long_work: LongWork,
    configs: ConfigResolver,
    controller: Controller,
    logs: LogManager,
    replicas: ReplicaManager,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    guard: TransactionGuard,
    markers: MarkerAppender,
    producer_ids: ProducerIds,
    fetch_sessions: FetchSessions,
) -> Mapping[int, Served]:
    """Everything a broker serves, by the API's key."""
    settings = SettingDescriptions(configs, image)
    topics = controller.topics
    auto_creation = AutoCreation(config, topics)
    table: dict[int, Served] = {}
    apis = [
        # records
        produce.produce.using(produce.Ports(replicas, guard, long_work, clock)),
        fetch.fetch.using(fetch.Ports(replicas, fetch_sessions, long_work, config)),
        list_offsets.list_offsets.using(list_offsets.Ports(replicas, long_work)),
        offset_for_leader_epoch.offset_for_leader_epoch.using(replicas),
        delete_records.delete_records.using(delete_records.Ports(replicas, logs)),
        # the cluster
        api_versions.api_versions.using(api_versions.Ports(image, table.values)),
        metadata.metadata.using(metadata.Ports(image, config, TopicAnswers(), auto_creation, long_work)),
        describe_cluster.describe_cluster.using(image),
        describe_topic_partitions.describe_topic_partitions.using(
            describe_topic_partitions.Ports(image, config)
        ),
        describe_log_dirs.describe_log_dirs.using(describe_log_dirs.Ports(logs, long_work)),
        find_coordinator.find_coordinator.using(find_coordinator.Ports(image, auto_creation)),
        # what the controller decides
        create_topics.create_topics.using(create_topics.Ports(topics, settings)),
        delete_topics.delete_topics.using(delete_topics.Ports(topics, image)),
        create_partitions.create_partitions.using(topics),
        alter_configs.alter_configs.using(controller.configs),
        incremental_alter_configs.incremental_alter_configs.using(controller.configs),
        describe_configs.describe_configs.using(describe_configs.Ports(node_id, image, settings)),
        list_config_resources.list_config_resources.using(list_config_resources.Ports(image, long_work)),
        update_features.update_features.using(controller.features),
        # groups
        join_group.join_group.using(groups),
        sync_group.sync_group.using(groups),
        heartbeat.heartbeat.using(groups),
        leave_group.leave_group.using(groups),
        consumer_group_heartbeat.consumer_group_heartbeat.using(groups),
        consumer_group_describe.consumer_group_describe.using(
            consumer_group_describe.Ports(groups, image, config)
        ),
        describe_groups.describe_groups.using(groups),
        list_groups.list_groups.using(list_groups.Ports(groups, long_work)),
        delete_groups.delete_groups.using(groups),
        offset_commit.offset_commit.using(offset_commit.Ports(groups, image)),
        offset_fetch.offset_fetch.using(offset_fetch.Ports(groups, image)),
        offset_delete.offset_delete.using(offset_delete.Ports(groups, image)),
        # producers and transactions
        init_producer_id.init_producer_id.using(init_producer_id.Ports(transactions, producer_ids)),
        add_partitions_to_txn.add_partitions_to_txn.using(add_partitions_to_txn.Ports(transactions, image)),
        add_offsets_to_txn.add_offsets_to_txn.using(add_offsets_to_txn.Ports(transactions, groups)),
        txn_offset_commit.txn_offset_commit.using(txn_offset_commit.Ports(groups, replicas, image, guard)),
        end_txn.end_txn.using(transactions),
        write_txn_markers.write_txn_markers.using(markers),
        describe_producers.describe_producers.using(replicas),
        describe_transactions.describe_transactions.using(transactions),
        list_transactions.list_transactions.using(list_transactions.Ports(transactions, clock, long_work)),
    ]
    table.update((served.api.key, served) for served in sorted(apis, key=lambda served: served.api.key))
    return table
