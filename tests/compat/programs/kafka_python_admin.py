"""The admin client of kafka-python, one program a function."""

from __future__ import annotations

from typing import Any

from kafka import OffsetAndMetadata, TopicPartition
from kafka.admin import (
    ACL,
    AbortTransactionSpec,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ConfigResource,
    ConfigResourceType,
    KafkaAdminClient,
    MemberToRemove,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    OffsetTimestamp,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.compat.programs.kafka_python_consumers import filled, polled
from tests.compat.programs.kafka_python_producers import consumer, made, producer
from tests.compat.programs.trace import Trace


def client(see: Trace, **options: Any) -> KafkaAdminClient:
    return KafkaAdminClient(bootstrap_servers=see.bootstrap, client_id="programs", **options)


def topics(see: Trace) -> None:
    admin = client(see)
    name = see.name("t")
    see.call("create", admin.create_topics, [NewTopic(name, 3, 1)])
    see.call("create again", admin.create_topics, [NewTopic(name, 3, 1)])
    see.call(
        "create without errors",
        admin.create_topics,
        [NewTopic(name, 3, 1), NewTopic(see.name("t2"))],
        raise_errors=False,
    )
    see.call("create dry", admin.create_topics, [NewTopic(see.name("dry"), 1, 1)], validate_only=True)
    see.call("create and wait", admin.create_topics, [NewTopic(see.name("w"), 1, 1)], wait_for_metadata=True)
    for label, topic in (
        ("no partitions", NewTopic(see.name("a"), 0, 1)),
        ("negative", NewTopic(see.name("a"), -2, 1)),
        ("two replicas", NewTopic(see.name("a"), 1, 2)),
        ("no replicas", NewTopic(see.name("a"), 1, 0)),
        ("invalid name", NewTopic("a b", 1, 1)),
        ("empty name", NewTopic("", 1, 1)),
        ("long name", NewTopic("x" * 250, 1, 1)),
        ("dots", NewTopic("..", 1, 1)),
        ("unknown setting", NewTopic(see.name("a"), 1, 1, topic_configs={"no.such": "1"})),
        ("bad setting", NewTopic(see.name("a"), 1, 1, topic_configs={"retention.ms": "soon"})),
        ("negative setting", NewTopic(see.name("a"), 1, 1, topic_configs={"segment.bytes": "-1"})),
        ("null setting", NewTopic(see.name("a"), 1, 1, topic_configs={"retention.ms": None})),
        ("bad policy", NewTopic(see.name("a"), 1, 1, topic_configs={"cleanup.policy": "x"})),
        ("unknown broker", NewTopic(see.name("a"), replica_assignments={0: [99]})),
        ("repeated broker", NewTopic(see.name("a"), replica_assignments={0: [1, 1]})),
        ("gap", NewTopic(see.name("a"), replica_assignments={0: [1], 2: [1]})),
        ("assigned", NewTopic(see.name("as"), replica_assignments={0: [1], 1: [1]})),
        ("colliding", NewTopic(see.name("t").replace("-", ".", 1), 1, 1)),
    ):
        see.call(label, admin.create_topics, [topic])
    see.call("collision", admin.create_topics, [NewTopic(see.name("c.d"), 1, 1)])
    see.call("collision 2", admin.create_topics, [NewTopic(see.name("c_d"), 1, 1)])
    see.call(
        "duplicates", admin.create_topics, [NewTopic(see.name("d"), 1, 1), NewTopic(see.name("d"), 2, 1)]
    )
    see.call("none", admin.create_topics, [])
    admin.wait_for_topics([name])
    see.call("listed", lambda: name in admin.list_topics())
    see.call("describe", admin.describe_topics, [name])
    see.call("describe unknown", admin.describe_topics, [see.name("no")])
    see.call("describe invalid", admin.describe_topics, ["a b"])
    see.call("describe partitions", admin.describe_topic_partitions, [name])
    see.call(
        "describe partitions limited", admin.describe_topic_partitions, [name], response_partition_limit=2
    )
    see.call("describe partitions unknown", admin.describe_topic_partitions, [see.name("no")])
    see.call("grow", admin.create_partitions, {name: NewPartitions(5)})
    see.call("grow with assignments", admin.create_partitions, {name: NewPartitions(6, [[1]])})
    for label, more in (
        ("same", NewPartitions(6)),
        ("fewer", NewPartitions(2)),
        ("negative", NewPartitions(-1)),
        ("unknown broker", NewPartitions(7, [[99]])),
        ("wrong number", NewPartitions(9, [[1]])),
        ("too many replicas", NewPartitions(7, [[1, 2]])),
    ):
        see.call(f"grow {label}", admin.create_partitions, {name: more})
    see.call("grow unknown", admin.create_partitions, {see.name("no"): NewPartitions(3)})
    see.call("grow dry", admin.create_partitions, {name: NewPartitions(8)}, validate_only=True)
    see.call("wait for unknown", admin.wait_for_topics, [see.name("no")], timeout_ms=1000)
    see.call("delete", admin.delete_topics, [name])
    see.call("delete again", admin.delete_topics, [name])
    see.call(
        "delete without errors", admin.delete_topics, [see.name("no"), see.name("w")], raise_errors=False
    )
    see.call("delete invalid", admin.delete_topics, ["a b"])
    see.call("delete none", admin.delete_topics, [])
    see.call("delete twice", admin.delete_topics, [see.name("as"), see.name("as")])
    admin.close()
    see.call("closed", admin.list_topics)


def settings(see: Trace) -> None:
    admin = client(see)
    name = made(see, "t", retention_ms="5000")

    def topic(**configs: Any) -> ConfigResource:
        return ConfigResource(
            ConfigResourceType.TOPIC,
            name,
            configs={key.replace("_", "."): each for key, each in configs.items()},
        )

    see.call("describe", admin.describe_configs, [topic()])
    see.call(
        "describe one",
        admin.describe_configs,
        [
            ConfigResource(
                ConfigResourceType.TOPIC, name, configs={"retention.ms": None, "cleanup.policy": None}
            )
        ],
        config_filter="all",
        include_synonyms=True,
    )
    see.call(
        "describe unknown setting",
        admin.describe_configs,
        [ConfigResource(ConfigResourceType.TOPIC, name, configs={"no.such": None})],
        config_filter="all",
    )
    see.call(
        "describe unknown topic",
        admin.describe_configs,
        [ConfigResource(ConfigResourceType.TOPIC, see.name("no"))],
    )
    see.call(
        "describe invalid topic", admin.describe_configs, [ConfigResource(ConfigResourceType.TOPIC, "a b")]
    )
    see.call(
        "describe unknown broker", admin.describe_configs, [ConfigResource(ConfigResourceType.BROKER, "77")]
    )
    see.call("describe odd broker", admin.describe_configs, [ConfigResource(ConfigResourceType.BROKER, "x")])
    see.call(
        "describe broker's setting",
        admin.describe_configs,
        [
            ConfigResource(
                ConfigResourceType.BROKER,
                "1",
                configs={"log.retention.hours": None, "num.partitions": None, "message.max.bytes": None},
            )
        ],
        config_filter="all",
        include_synonyms=True,
    )
    see.call(
        "describe all brokers",
        admin.describe_configs,
        [ConfigResource(ConfigResourceType.BROKER, "", configs={"log.retention.ms": None})],
        config_filter="all",
    )
    for incremental in (True, False, None):
        see.call(
            f"alter {incremental}", admin.alter_configs, [topic(retention_ms="6000")], incremental=incremental
        )
        see.call_until(
            f"described {incremental}",
            lambda found: "'6000'" in str(found),
            admin.describe_configs,
            [topic()],
        )
        see.call(
            f"alter dry {incremental}",
            admin.alter_configs,
            [topic(retention_ms="7000")],
            validate_only=True,
            incremental=incremental,
        )
        see.call(
            f"alter bad {incremental}",
            admin.alter_configs,
            [topic(retention_ms="soon")],
            incremental=incremental,
        )
        see.call(
            f"alter null {incremental}",
            admin.alter_configs,
            [topic(retention_ms=None)],
            incremental=incremental,
        )
        see.call(
            f"alter unknown {incremental}",
            admin.alter_configs,
            [topic(no_such="1")],
            incremental=incremental,
            raise_on_unknown=False,
        )
        see.call(
            f"alter unknown checked {incremental}",
            admin.alter_configs,
            [topic(no_such="1")],
            incremental=incremental,
        )
        see.call(
            f"alter no topic {incremental}",
            admin.alter_configs,
            [ConfigResource(ConfigResourceType.TOPIC, see.name("no"), configs={"retention.ms": "1"})],
            incremental=incremental,
            raise_on_unknown=False,
        )
        see.call(
            f"reset {incremental}", admin.reset_configs, [topic(retention_ms=None)], incremental=incremental
        )
        see.call_until(
            f"described after reset {incremental}",
            lambda found: "'6000'" not in str(found),
            admin.describe_configs,
            [topic()],
        )
    see.call(
        "alter broker",
        admin.alter_configs,
        [ConfigResource(ConfigResourceType.BROKER, "1", configs={"log.cleaner.backoff.ms": "14000"})],
    )
    see.call(
        "alter broker read-only",
        admin.alter_configs,
        [ConfigResource(ConfigResourceType.BROKER, "1", configs={"log.dirs": "/tmp/x"})],
    )
    see.call(
        "alter brokers",
        admin.alter_configs,
        [ConfigResource(ConfigResourceType.BROKER, "", configs={"log.cleaner.backoff.ms": "13000"})],
    )
    see.call(
        "reset broker",
        admin.reset_configs,
        [ConfigResource(ConfigResourceType.BROKER, "1", configs={"log.cleaner.backoff.ms": None})],
    )
    see.call(
        "reset brokers",
        admin.reset_configs,
        [ConfigResource(ConfigResourceType.BROKER, "", configs={"log.cleaner.backoff.ms": None})],
    )
    see.call(
        "alter group",
        admin.alter_configs,
        [
            ConfigResource(
                ConfigResourceType.GROUP, see.name("g"), configs={"consumer.session.timeout.ms": "50000"}
            )
        ],
    )
    see.call_until(
        "describe group",
        lambda found: "'50000'" in str(found),
        admin.describe_configs,
        [ConfigResource(ConfigResourceType.GROUP, see.name("g"))],
    )
    for kinds in (["TOPIC"], ["GROUP"], ["BROKER"], ["CLIENT_METRICS"]):
        seen = admin.list_config_resources(kinds)
        see.note(
            f"kinds {kinds}",
            {
                str(kind): len([each for each in found if see.name("") in str(each)])
                for kind, found in seen.items()
            }
            if isinstance(seen, dict)
            else type(seen).__name__,
        )
    admin.close()


def cluster(see: Trace) -> None:
    admin = client(see)
    see.call("cluster", admin.describe_cluster)
    see.call("features", lambda: type(admin.describe_features()).__name__)
    see.call("api versions", lambda: type(admin.api_versions()).__name__)
    see.call("broker version", admin.get_broker_version_data, 1)
    see.call("broker version of none", admin.get_broker_version_data, 99)
    name = filled(see, "t", 3)
    see.call("log dirs", lambda: _shape(admin.describe_log_dirs([TopicPartition(name, 0)])))
    see.call("log dirs of none", lambda: _shape(admin.describe_log_dirs([TopicPartition(see.name("no"), 0)])))
    see.call("move to a directory", admin.alter_replica_log_dirs, {TopicPartition(name, 0): {1: "/no/such"}})
    see.call("reassign", admin.alter_partition_reassignments, {TopicPartition(name, 0): [1]})
    see.call("reassign to none", admin.alter_partition_reassignments, {TopicPartition(name, 0): [99]})
    see.call("reassign cancel", admin.alter_partition_reassignments, {TopicPartition(name, 0): None})
    see.call(
        "reassign unknown", admin.alter_partition_reassignments, {TopicPartition(see.name("no"), 0): [1]}
    )
    see.call("reassignments", admin.list_partition_reassignments)
    see.call("elect", admin.elect_leaders, "preferred", {name: [0]})
    see.call("elect without errors", admin.elect_leaders, "preferred", {name: [0]}, raise_errors=False)
    see.call("elect unknown", admin.elect_leaders, "preferred", {see.name("no"): [0]}, raise_errors=False)
    see.call("elect unclean", admin.elect_leaders, "unclean", {name: [0]}, raise_errors=False)
    see.call("update features", admin.update_features, {"no.such": 1}, validate_only=True)
    see.call("update features far", admin.update_features, {"group.version": 99}, validate_only=True)
    admin.close()


def _shape(seen: Any) -> Any:
    """Drop sizes and paths."""
    if isinstance(seen, dict):
        return {
            key: _shape(each)
            for key, each in seen.items()
            if key not in ("total_bytes", "usable_bytes", "log_dir")
        }
    if isinstance(seen, (list, tuple)):
        return [_shape(each) for each in seen]
    return seen


def offsets(see: Trace) -> None:
    admin = client(see)
    name = filled(see, "t", 6)
    place, none = TopicPartition(name, 0), TopicPartition(see.name("no"), 0)
    for spec in (
        OffsetSpec.EARLIEST,
        OffsetSpec.LATEST,
        OffsetSpec.MAX_TIMESTAMP,
        OffsetSpec.EARLIEST_LOCAL,
        OffsetSpec.LATEST_TIERED,
        OffsetTimestamp(1025),
        OffsetTimestamp(99999),
    ):
        see.call(f"{spec}", admin.list_partition_offsets, {place: spec})
    see.call("unknown", admin.list_partition_offsets, {none: OffsetSpec.LATEST}, timeout_ms=3000)
    see.call(
        "unknown partition",
        admin.list_partition_offsets,
        {TopicPartition(name, 7): OffsetSpec.LATEST},
        timeout_ms=3000,
    )
    see.call("delete records", admin.delete_records, {place: 2})
    see.call("delete earlier", admin.delete_records, {place: 1})
    see.call("delete far", admin.delete_records, {place: 99})
    see.call("delete negative", admin.delete_records, {place: -5})
    see.call("delete unknown", admin.delete_records, {none: 1}, timeout_ms=3000)
    see.call("beginning", admin.list_partition_offsets, {place: OffsetSpec.EARLIEST})
    see.call("delete all", admin.delete_records, {place: -1})
    see.call("beginning at the end", admin.list_partition_offsets, {place: OffsetSpec.EARLIEST})
    admin.close()


def groups(see: Trace) -> None:
    admin = client(see)
    name = filled(see, "t", 4, partitions=2)
    place = TopicPartition(name, 0)
    group, none = see.name("g"), see.name("none")
    reader = consumer(see, name, group_id=group, group_instance_id="i", enable_auto_commit=False)
    polled(reader, 8000)
    reader.commit({place: OffsetAndMetadata(3, "m", -1)})
    see.call("describe", admin.describe_groups, [group])
    see.call("describe operations", admin.describe_groups, [group], include_authorized_operations=True)
    see.call("describe none", admin.describe_groups, [none])
    see.call("describe empty name", admin.describe_groups, [""])
    see.call("listed", lambda: [each for each in admin.list_groups() if group in str(each)])
    see.call(
        "listed by state",
        lambda: [each for each in admin.list_groups(states_filter=["Stable"]) if group in str(each)],
    )
    see.call(
        "listed by type",
        lambda: [each for each in admin.list_groups(types_filter=["classic"]) if group in str(each)],
    )
    see.call(
        "listed by odd state",
        lambda: [each for each in admin.list_groups(states_filter=["Odd"]) if group in str(each)],
    )
    see.call(
        "listed by odd type",
        lambda: [each for each in admin.list_groups(types_filter=["odd"]) if group in str(each)],
    )
    see.call("offsets", admin.list_group_offsets, {group: None})
    see.call("offsets of a partition", admin.list_group_offsets, {group: [place, TopicPartition(name, 1)]})
    see.call("offsets of none", admin.list_group_offsets, {none: None})
    see.call("alter while it lives", admin.alter_group_offsets, group, {place: OffsetAndMetadata(1, "", -1)})
    see.call("delete offsets while it lives", admin.delete_group_offsets, group, [place])
    see.call("delete while it lives", admin.delete_groups, [group])
    see.call("remove a stranger", admin.remove_group_members, group, [MemberToRemove(group_instance_id="x")])
    see.call("remove", admin.remove_group_members, group, [MemberToRemove(group_instance_id="i")])
    see.call("remove from none", admin.remove_group_members, none, [MemberToRemove(member_id="x")])
    reader.close()
    see.call("describe empty", admin.describe_groups, [group])
    see.call("alter", admin.alter_group_offsets, group, {place: OffsetAndMetadata(1, "", -1)})
    see.call(
        "alter no partition",
        admin.alter_group_offsets,
        group,
        {TopicPartition(name, 9): OffsetAndMetadata(1, "", -1)},
    )
    see.call(
        "alter new group", admin.alter_group_offsets, see.name("new"), {place: OffsetAndMetadata(1, "", -1)}
    )
    see.call("reset", admin.reset_group_offsets, group, {place: OffsetSpec.LATEST})
    see.call("offsets after", admin.list_group_offsets, {group: None})
    see.call("delete offsets", admin.delete_group_offsets, group, [place])
    see.call("delete offsets again", admin.delete_group_offsets, group, [place])
    see.call("delete offsets of none", admin.delete_group_offsets, none, [place])
    see.call("delete", admin.delete_groups, [group])
    see.call("delete again", admin.delete_groups, [group])
    see.call("describe deleted", admin.describe_groups, [group])
    admin.close()


def transactions(see: Trace) -> None:
    admin = client(see)
    name = made(see, "t")
    place = TopicPartition(name, 0)
    xid = see.name("x")
    writer = producer(see, transactional_id=xid)
    writer.init_transactions()
    writer.begin_transaction()
    writer.send(name, b"v").get(10)
    see.call("describe", lambda: _without_ids(see.plain(admin.describe_transactions([xid]))))
    see.call("describe none", admin.describe_transactions, [see.name("no")])
    see.call("describe empty", admin.describe_transactions, [""])
    see.call(
        "list",
        lambda: [
            _without_ids(see.plain(each)) for each in _flat(admin.list_transactions()) if xid in str(each)
        ],
    )
    see.call(
        "list by state",
        lambda: [
            _without_ids(see.plain(each))
            for each in _flat(admin.list_transactions(state_filters=["Ongoing"]))
            if xid in str(each)
        ],
    )
    see.call(
        "list by odd state",
        lambda: [
            _without_ids(see.plain(each))
            for each in _flat(admin.list_transactions(state_filters=["Odd"]))
            if xid in str(each)
        ],
    )
    see.call(
        "list by pattern",
        lambda: [
            _without_ids(see.plain(each))
            for each in _flat(admin.list_transactions(transactional_id_pattern=f"{xid}.*"))
        ],
    )
    see.call("list by bad pattern", lambda: admin.list_transactions(transactional_id_pattern="("))
    see.call("producers", lambda: _without_ids(see.plain(admin.describe_producers([place]))))
    see.call("producers of none", admin.describe_producers, [TopicPartition(see.name("no"), 0)])
    see.call("hanging", lambda: type(admin.find_hanging_transactions(broker_ids=[1])).__name__)
    states = next(iter(admin.describe_producers([place]).values()))
    state = (
        states.get("active_producers")
        if isinstance(states, dict)
        else getattr(states, "active_producers", states)
    )
    first = state[0]
    get = first.get if isinstance(first, dict) else lambda key: getattr(first, key)
    see.call(
        "abort",
        admin.abort_transaction,
        AbortTransactionSpec(place, get("producer_id"), get("producer_epoch"), get("coordinator_epoch")),
    )
    see.call("commit aborted", writer.commit_transaction)
    writer.close(3)
    admin.close()


def _flat(seen: Any) -> list[Any]:
    if isinstance(seen, dict):
        return [each for found in seen.values() for each in _flat(found)]
    return list(seen) if isinstance(seen, (list, tuple)) and not hasattr(seen, "_asdict") else [seen]


def _without_ids(seen: Any) -> Any:
    if isinstance(seen, dict):
        return {
            key: _without_ids(each)
            for key, each in seen.items()
            if key
            not in ("producer_id", "transaction_start_time_ms", "coordinator_id", "current_txn_start_offset")
        }
    return [_without_ids(each) for each in seen] if isinstance(seen, list) else seen


def permissions_and_users(see: Trace) -> None:
    admin = client(see)
    pattern = ResourcePattern(ResourceType.TOPIC, see.name("t"))
    rule = ACL("User:a", "*", ACLOperation.READ, ACLPermissionType.ALLOW, pattern)
    see.call("create acl", admin.create_acls, [rule])
    see.call(
        "describe acls",
        admin.describe_acls,
        ACLFilter(
            "User:a",
            "*",
            ACLOperation.ANY,
            ACLPermissionType.ANY,
            ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
        ),
    )
    see.call(
        "delete acls",
        admin.delete_acls,
        [
            ACLFilter(
                "User:a",
                "*",
                ACLOperation.ANY,
                ACLPermissionType.ANY,
                ResourcePatternFilter(ResourceType.TOPIC, see.name("t"), ACLResourcePatternType.LITERAL),
            )
        ],
    )
    user = see.name("u")
    see.call("describe users", lambda: sorted(admin.describe_user_scram_credentials([user])))
    see.call(
        "upsert",
        admin.alter_user_scram_credentials,
        [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "secret", iterations=4096)],
    )
    see.call(
        "few iterations",
        lambda: sorted(
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "secret", iterations=10)]
            )
        ),
    )
    see.call(
        "many iterations",
        lambda: sorted(
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion(user, ScramMechanism.SCRAM_SHA_256, "secret", iterations=20000)]
            )
        ),
    )
    see.call(
        "empty user",
        lambda: sorted(
            admin.alter_user_scram_credentials(
                [UserScramCredentialUpsertion("", ScramMechanism.SCRAM_SHA_256, "secret", iterations=4096)]
            )
        ),
    )
    see.call_until(
        "describe user", lambda found: "20000" in str(found), admin.describe_user_scram_credentials, [user]
    )
    see.call("describe user twice", lambda: sorted(admin.describe_user_scram_credentials([user, user])))
    see.call(
        "delete user",
        admin.alter_user_scram_credentials,
        [UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)],
    )
    see.call(
        "delete user again",
        lambda: sorted(
            admin.alter_user_scram_credentials(
                [UserScramCredentialDeletion(user, ScramMechanism.SCRAM_SHA_256)]
            )
        ),
    )
    admin.close()
