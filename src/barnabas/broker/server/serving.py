"""The table of what a broker serves: each handler with the parts that it works on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode
from barnabas.base.types import GROUP_METADATA_TOPIC, TRANSACTION_STATE_TOPIC, BrokerId, TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller import AutoCreation, Controller
from barnabas.broker.controller.standing import known_brokers, standing_of
from barnabas.broker.coordinator import GroupCoordinator, ProducerIds, TransactionCoordinator
from barnabas.broker.coordinator.coordinator import Coordinator
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.logins.delegation_tokens import TokenKeys
from barnabas.broker.logs.cold_reads import ColdReads
from barnabas.broker.logs.manager import LogManager
from barnabas.broker.logs.moves import LogMoves
from barnabas.broker.metadata import ClusterImage
from barnabas.broker.metadata.configs import ConfigResolver
from barnabas.broker.quotas import ClientQuotas
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.throttles import ReplicationThrottles
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.auditing.watch import Denials, changes_audited
from barnabas.broker.server.fetching.read_index import ReadIndex
from barnabas.broker.server.fetching.sessions import FetchSessions
from barnabas.broker.server.forwarding import Forwarding
from barnabas.broker.server.handlers import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_topic_partitions,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    envelope,
    expire_delegation_token,
    fetch,
    find_coordinator,
    get_replica_log_info,
    get_telemetry_subscriptions,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    push_telemetry,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    sync_group,
    txn_offset_commit,
    unregister_broker,
    update_features,
    write_txn_markers,
)
from barnabas.broker.server.requests.api import Served
from barnabas.broker.server.requests.confirmed import confirmed
from barnabas.broker.server.requests.dispatch import Dispatcher
from barnabas.broker.server.requests.guard import guarded
from barnabas.broker.server.requests.logged_in_only import logged_in_only
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.new_names import NewNames, bounded
from barnabas.broker.server.responses.config_listing import SettingDescriptions
from barnabas.broker.server.responses.topics import TopicAnswers
from barnabas.broker.server.telemetry.clients import TelemetryClients
from barnabas.broker.server.transactions.guard import TransactionGuard
from barnabas.broker.server.transactions.markers import MarkerAppender
from barnabas.kafka.security.acls import Authorizer

#: how long a request for a missing topic waits at most for the controller to make it: clients ask again
_AUTO_CREATION_SECONDS = 2.0


def served_apis(
    *,
    node_id: BrokerId,
    config: Callable[[], BrokerConfig],
    image: Callable[[], ClusterImage],
    clock: Clock,
    long_work: LongWork,
    search: PatternSearch,
    cold_reads: ColdReads,
    configs: ConfigResolver,
    controller: Controller,
    logs: LogManager,
    moves: LogMoves,
    replicas: ReplicaManager,
    throttles: ReplicationThrottles,
    quotas: ClientQuotas,
    groups: GroupCoordinator,
    transactions: TransactionCoordinator,
    guard: TransactionGuard,
    markers: MarkerAppender,
    producer_ids: ProducerIds,
    fetch_sessions: FetchSessions,
    read_index: ReadIndex,
    forwarding: Forwarding,
    authorizer: Authorizer | None,
    trail: AuditTrail,
    telemetry: TelemetryClients,
    token_keys: TokenKeys | None,
) -> Mapping[int, Served]:
    """Everything a broker serves, by the API's key."""

    def keep(served: Served) -> Served:
        if authorizer is None:
            return served
        return guarded(served, authorizer, lambda topic_id: image().topic_names.get(topic_id), denials)

    def of_leader(served: Served, partition: str) -> Served:
        """What only the leader of the partitions that a request names may answer."""
        return confirmed(
            served, read_index, partial(_named_partitions, partition), ErrorCode.NOT_LEADER_OR_FOLLOWER
        )

    def of_coordinator(
        served: Served, topic: str, coordinator: Coordinator[Any], fields: tuple[str, ...]
    ) -> Served:
        """What only the coordinator of the keys in these fields may answer."""
        return confirmed(
            served,
            read_index,
            lambda request: [
                TopicPartition(topic, coordinator.partition_for(key)) for key in _names(request, *fields)
            ],
            ErrorCode.NOT_COORDINATOR,
        )

    def of_group(served: Served, *fields: str) -> Served:
        """What only the coordinator of the groups that a request names may answer."""
        return of_coordinator(served, GROUP_METADATA_TOPIC, groups, fields or ("group_id",))

    def of_transaction(served: Served, *fields: str) -> Served:
        """What only the coordinator of the transactional ids that a request names may answer."""
        return of_coordinator(served, TRANSACTION_STATE_TOPIC, transactions, fields or ("transactional_id",))

    denials = Denials(trail)
    new_groups = NewNames(
        "groups",
        "barnabas.groups.per.principal",
        lambda: config().barnabas_groups_per_principal,
        lambda name: groups.has_group(name),
    )
    new_ids = NewNames(
        "transactional ids",
        "barnabas.transactional.ids.per.principal",
        lambda: config().barnabas_transactional_ids_per_principal,
        lambda name: transactions.has_transactional_id(name),
    )
    settings = SettingDescriptions(configs, image)
    topics = controller.topics
    has_acls = authorizer is not None
    auto_creation = AutoCreation(
        config,
        lambda: (len(standing_of(image()).in_sync), len(known_brokers(image()))),
        partial(forwarding.send, timeout_s=_AUTO_CREATION_SECONDS),
    )
    table: dict[int, Served] = {}
    apis = [
        # records
        produce.produce.using(produce.Ports(replicas, guard, long_work, clock)),
        fetch.fetch.using(
            fetch.Ports(replicas, fetch_sessions, long_work, cold_reads, config, image, throttles.leader)
        ),
        of_leader(
            list_offsets.list_offsets.using(list_offsets.Ports(replicas, long_work, cold_reads)),
            "partition_index",
        ),
        of_leader(offset_for_leader_epoch.offset_for_leader_epoch.using(replicas), "partition"),
        delete_records.delete_records.using(delete_records.Ports(replicas, logs)),
        # the cluster
        api_versions.api_versions.using(api_versions.Ports(image, table.values)),
        metadata.metadata.using(metadata.Ports(image, config, TopicAnswers(), auto_creation, long_work)),
        describe_cluster.describe_cluster.using(image),
        describe_topic_partitions.describe_topic_partitions.using(
            describe_topic_partitions.Ports(image, config, long_work)
        ),
        list_partition_reassignments.list_partition_reassignments.using(
            list_partition_reassignments.Ports(image, long_work)
        ),
        describe_log_dirs.describe_log_dirs.using(describe_log_dirs.Ports(logs, long_work)),
        alter_replica_log_dirs.alter_replica_log_dirs.using(
            alter_replica_log_dirs.Ports(replicas, moves, long_work)
        ),
        find_coordinator.find_coordinator.using(find_coordinator.Ports(image, auto_creation)),
        # what the controller decides, by whichever broker it is asked
        *(
            forwarding.forwarded(keep(served))
            for served in (
                create_topics.create_topics.using(create_topics.Ports(topics, settings, config, quotas)),
                delete_topics.delete_topics.using(delete_topics.Ports(topics, image, quotas)),
                create_partitions.create_partitions.using(create_partitions.Ports(topics, image, quotas)),
                alter_partition_reassignments.alter_partition_reassignments.using(controller.reassignments),
                elect_leaders.elect_leaders.using(controller.elections),
                alter_configs.alter_configs.using(controller.configs),
                incremental_alter_configs.incremental_alter_configs.using(controller.configs),
                update_features.update_features.using(controller.features),
                unregister_broker.unregister_broker.using(controller.unregistration),
                alter_user_scram_credentials.alter_user_scram_credentials.using(
                    alter_user_scram_credentials.Ports(controller.users, long_work)
                ),
                alter_client_quotas.alter_client_quotas.using(controller.quotas),
                create_acls.create_acls.using(create_acls.Ports(controller.acls, has_acls)),
                delete_acls.delete_acls.using(delete_acls.Ports(controller.acls, long_work, has_acls)),
            )
        ),
        *(
            logged_in_only(forwarding.forwarded(keep(served)))
            for served in (
                create_delegation_token.create_delegation_token.using(controller.tokens),
                renew_delegation_token.renew_delegation_token.using(controller.tokens),
                expire_delegation_token.expire_delegation_token.using(controller.tokens),
            )
        ),
        logged_in_only(
            describe_delegation_token.describe_delegation_token.using(
                describe_delegation_token.Ports(image, long_work, token_keys)
            )
        ),
        describe_acls.describe_acls.using(describe_acls.Ports(image, long_work, has_acls)),
        describe_user_scram_credentials.describe_user_scram_credentials.using(image),
        describe_client_quotas.describe_client_quotas.using(describe_client_quotas.Ports(image, long_work)),
        describe_configs.describe_configs.using(describe_configs.Ports(node_id, image, settings)),
        list_config_resources.list_config_resources.using(list_config_resources.Ports(image, long_work)),
        # the metrics of clients
        get_telemetry_subscriptions.get_telemetry_subscriptions.using(
            get_telemetry_subscriptions.Ports(telemetry, config)
        ),
        push_telemetry.push_telemetry.using(push_telemetry.Ports(telemetry, config, long_work)),
        # login requests that arrive when none is expected
        sasl_handshake.sasl_handshake.using(None),
        sasl_authenticate.sasl_authenticate.using(None),
        # what brokers ask the controller
        envelope.envelope.using(
            envelope.Ports(
                lambda: controller.active, forwarding.local, Dispatcher(forwarding.local, long_work)
            )
        ),
        allocate_producer_ids.allocate_producer_ids.using(
            allocate_producer_ids.Ports(controller.check_registered, controller.producer_ids)
        ),
        alter_partition.alter_partition.using(controller.partitions),
        get_replica_log_info.get_replica_log_info.using(
            get_replica_log_info.Ports(replicas, lambda: controller.registration.epoch)
        ),
        # groups
        bounded(of_group(join_group.join_group.using(groups)), "group_id", new_groups),
        of_group(sync_group.sync_group.using(groups)),
        of_group(heartbeat.heartbeat.using(groups)),
        of_group(leave_group.leave_group.using(groups)),
        bounded(
            of_group(consumer_group_heartbeat.consumer_group_heartbeat.using(groups)), "group_id", new_groups
        ),
        of_group(
            consumer_group_describe.consumer_group_describe.using(
                consumer_group_describe.Ports(groups, image, config)
            ),
            "group_ids",
        ),
        of_group(describe_groups.describe_groups.using(groups), "groups"),
        list_groups.list_groups.using(list_groups.Ports(groups, long_work)),
        of_group(delete_groups.delete_groups.using(groups), "groups_names"),
        bounded(
            of_group(offset_commit.offset_commit.using(offset_commit.Ports(groups, image))),
            "group_id",
            new_groups,
        ),
        of_group(
            offset_fetch.offset_fetch.using(offset_fetch.Ports(groups, image)), "group_id", "groups.group_id"
        ),
        of_group(offset_delete.offset_delete.using(offset_delete.Ports(groups, image))),
        # producers and transactions
        bounded(
            of_transaction(
                init_producer_id.init_producer_id.using(init_producer_id.Ports(transactions, producer_ids))
            ),
            "transactional_id",
            new_ids,
        ),
        of_transaction(
            add_partitions_to_txn.add_partitions_to_txn.using(
                add_partitions_to_txn.Ports(transactions, image)
            ),
            "v3_and_below_transactional_id",
            "transactions.transactional_id",
        ),
        of_transaction(
            add_offsets_to_txn.add_offsets_to_txn.using(add_offsets_to_txn.Ports(transactions, groups))
        ),
        bounded(
            of_group(
                txn_offset_commit.txn_offset_commit.using(
                    txn_offset_commit.Ports(groups, replicas, image, guard)
                )
            ),
            "group_id",
            new_groups,
        ),
        of_transaction(end_txn.end_txn.using(transactions)),
        write_txn_markers.write_txn_markers.using(markers),
        describe_producers.describe_producers.using(replicas),
        of_transaction(describe_transactions.describe_transactions.using(transactions), "transactional_ids"),
        list_transactions.list_transactions.using(
            list_transactions.Ports(transactions, clock, long_work, search)
        ),
    ]
    for served in sorted(apis, key=lambda served: served.api.key):
        # The controller authorises forwarded requests.
        kept = served if served.api.key in forwarding.local else keep(served)
        table[served.api.key] = changes_audited(kept, trail)
    return table


def _names(request: Any, *fields: str) -> Iterator[str]:
    """The names in fields of a request, or in those of its arrays (``array.field``); null is none."""
    for path in fields:
        items, _, field = path.rpartition(".")
        for item in getattr(request, items) if items else [request]:
            found = getattr(item, field)
            if isinstance(found, str):
                yield found
            elif found is not None:
                yield from found


def _named_partitions(field: str, request: Any) -> Iterable[TopicPartition]:
    """The partitions in a request's topics; `field` has their numbers."""
    for topic in request.topics:
        name = topic.name if hasattr(topic, "name") else topic.topic
        for wanted in topic.partitions:
            yield TopicPartition(name, getattr(wanted, field))
