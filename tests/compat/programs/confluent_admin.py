"""The admin client of confluent-kafka, one program a function."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from confluent_kafka import (
    OFFSET_END,
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    ConsumerGroupType,
    ElectionType,
    KafkaError,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.compat.programs.confluent_clients import admin, consumer, filled, made, polled, until
from tests.compat.programs.confluent_groups import PROTOCOLS
from tests.compat.programs.trace import Trace


def topics_and_their_errors(see: Trace) -> None:
    clients = admin(see)
    name, none = see.name("t"), see.name("no")
    for label, topic in (
        ("a topic", NewTopic(name, 3, 1)),
        ("again", NewTopic(name, 3, 1)),
        ("the defaults", NewTopic(see.name("defaults"), -1, -1)),
        ("settings", NewTopic(see.name("set"), 1, 1, config={"retention.ms": "5000"})),
        ("an assignment", NewTopic(see.name("assigned"), replica_assignment=[[1], [1]])),
        ("an unknown broker", NewTopic(see.name("x"), replica_assignment=[[9]])),
        ("one broker twice", NewTopic(see.name("x"), replica_assignment=[[1, 1]])),
        ("two replicas", NewTopic(see.name("x"), 1, 2)),
        ("no partitions", NewTopic(see.name("x"), 0, 1)),
        ("too many partitions", NewTopic(see.name("x"), 100_000, 1)),
        ("an invalid name", NewTopic("a b", 1, 1)),
        ("a long name", NewTopic("x" * 250, 1, 1)),
        ("an unknown setting", NewTopic(see.name("x"), 1, 1, config={"no.such": "1"})),
        ("a bad value", NewTopic(see.name("x"), 1, 1, config={"retention.ms": "x"})),
        ("a value out of range", NewTopic(see.name("x"), 1, 1, config={"max.message.bytes": "-1"})),
        ("an empty value", NewTopic(see.name("x"), 1, 1, config={"cleanup.policy": ""})),
    ):
        see.call(f"create {label}", lambda topic=topic: clients.create_topics([topic]))
    see.call(
        "create good and bad",
        lambda: clients.create_topics([NewTopic(see.name("good"), 1, 1), NewTopic(name, 1, 1)]),
    )
    dry = see.name("dry")
    see.call("create dry", lambda: clients.create_topics([NewTopic(dry, 1, 1)], validate_only=True))
    see.call("create dry again", lambda: clients.create_topics([NewTopic(name, 1, 1)], validate_only=True))
    see.note("the topic is known", until(lambda: _partitions(see, name) == 3))
    see.call("describe", lambda: clients.describe_topics(TopicCollection([name, none])))
    see.call(
        "describe with operations",
        lambda: clients.describe_topics(TopicCollection([name]), include_authorized_operations=True),
    )
    see.call("describe an invalid name", lambda: clients.describe_topics(TopicCollection(["a b"])))
    for label, new in (
        ("more", NewPartitions(name, 5)),
        ("fewer", NewPartitions(name, 2)),
        ("as many", NewPartitions(name, 5)),
        ("of no topic", NewPartitions(none, 5)),
        ("far too many", NewPartitions(name, 1_000_000)),
        ("an assignment", NewPartitions(name, 6, replica_assignment=[[1]])),
        ("an assignment of too many", NewPartitions(name, 7, replica_assignment=[[1], [1]])),
        ("an unknown broker", NewPartitions(name, 7, replica_assignment=[[9]])),
    ):
        see.call(f"partitions: {label}", lambda new=new: clients.create_partitions([new]))
    see.call(
        "partitions: dry",
        lambda: clients.create_partitions([NewPartitions(name, 9)], validate_only=True),
    )
    see.note("the partitions are known", until(lambda: _partitions(see, name) == 6))
    see.call("delete", lambda: clients.delete_topics([name, none]))
    see.note("the topic is gone", until(lambda: _partitions(see, name) == 0))
    see.call("delete again", lambda: clients.delete_topics([name]))
    see.call("delete an invalid name", lambda: clients.delete_topics(["a b"]))


def _partitions(see: Trace, topic: str) -> int:
    clients = admin(see)
    described = clients.describe_topics(TopicCollection([topic]))[topic]
    return 0 if described.exception(30) is not None else len(described.result().partitions)


def _set(name: str, value: str | None = None, operation: Any = AlterConfigOpType.SET) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=operation)


def settings_of_topics(see: Trace) -> None:
    clients = admin(see)
    name = made(see, "t", retention_ms="5000")

    def changed() -> Any:
        entries = clients.describe_configs([ConfigResource(ResourceType.TOPIC, name)])
        (found,) = entries.values()
        return {
            entry.name: (entry.value, entry.source, entry.is_read_only, entry.is_sensitive)
            for entry in found.result(20).values()
            if not entry.is_default
        }

    see.call("changed", changed)
    operations = AlterConfigOpType
    for label, expected, *entries in (
        ("set", "6000", _set("retention.ms", "6000"), _set("cleanup.policy", "compact")),
        ("append", "compact,delete", _set("cleanup.policy", "delete", operations.APPEND)),
        ("append again", "compact,delete", _set("cleanup.policy", "delete", operations.APPEND)),
        ("subtract", "delete", _set("cleanup.policy", "compact", operations.SUBTRACT)),
        ("subtract what is not there", "delete", _set("cleanup.policy", "compact", operations.SUBTRACT)),
        ("delete", None, _set("retention.ms", None, operations.DELETE)),
        ("delete again", None, _set("retention.ms", None, operations.DELETE)),
        ("an unknown one", None, _set("no.such", "1")),
        ("a bad value", None, _set("retention.ms", "x")),
        ("good and bad", None, _set("retention.ms", "x"), _set("segment.ms", "7000")),
        ("append to a number", None, _set("retention.ms", "1", operations.APPEND)),
        ("a null", None, _set("retention.ms", None)),
        ("compression", "zstd", _set("compression.type", "zstd"), _set("compression.zstd.level", "5")),
        ("a level out of range", "5", _set("compression.zstd.level", "99")),
        ("a minimum above the replicas", "5", _set("min.insync.replicas", "5")),
    ):
        resource = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
        see.call(label, lambda resource=resource: clients.incremental_alter_configs([resource]))
        # Kafka's broker answers before it knows the new values.
        setting = entries[0].name
        see.note(
            f"{label}: as expected",
            until(
                lambda setting=setting, expected=expected: changed().get(setting, (None,))[0] == expected, 5
            ),
        )
        see.note(f"{label}: stored", changed())
    twice = ConfigResource(
        ResourceType.TOPIC, name, incremental_configs=[_set("segment.ms", "1"), _set("segment.ms", "2")]
    )
    see.call("one setting twice", lambda: clients.incremental_alter_configs([twice]))
    dry = ConfigResource(ResourceType.TOPIC, name, incremental_configs=[_set("retention.ms", "9")])
    see.call("dry", lambda: clients.incremental_alter_configs([dry], validate_only=True))
    none = ConfigResource(ResourceType.TOPIC, see.name("no"), incremental_configs=[_set("retention.ms", "9")])
    see.call("of no topic", lambda: clients.incremental_alter_configs([none]))
    see.call("of a topic and none", lambda: clients.incremental_alter_configs([dry, none]))
    see.call("describe none", lambda: clients.describe_configs([none]))
    see.call(
        "describe an invalid name",
        lambda: clients.describe_configs([ConfigResource(ResourceType.TOPIC, "a b")]),
    )
    for label, expected, values in (
        ("replace", "7000", {"retention.ms": "7000"}),
        ("replace by a bad value", "7000", {"retention.ms": "x"}),
        ("replace by an unknown one", "7000", {"no.such": "x"}),
        ("replace by nothing", None, {}),
    ):
        everything = ConfigResource(ResourceType.TOPIC, name, set_config=values)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # programs of today still call it
            see.call(label, clients.alter_configs, [everything])
        see.note(
            f"{label}: as expected",
            until(lambda expected=expected: changed().get("retention.ms", (None,))[0] == expected, 5),
        )
        see.note(f"{label}: stored", changed())


def settings_of_brokers_and_groups(see: Trace) -> None:
    clients = admin(see)
    operations = AlterConfigOpType

    def value(kind: Any, name: str, setting: str) -> Any:
        (found,) = clients.describe_configs([ConfigResource(kind, name)]).values()
        entry = found.result(20)[setting]
        return entry.value, entry.source, entry.is_read_only, entry.is_default, entry.is_sensitive

    for broker, setting, good, bad in (
        ("1", "message.max.bytes", "2000000", "x"),
        ("1", "log.retention.ms", "99999999", "x"),
        ("", "log.retention.ms", "88888888", "x"),
    ):
        label = f"broker {broker or 'all'}: {setting}"
        for step, entry in (
            ("set", _set(setting, good)),
            ("bad", _set(setting, bad)),
            ("delete", _set(setting, None, operations.DELETE)),
        ):
            resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
            see.call(
                f"{label} {step}", lambda resource=resource: clients.incremental_alter_configs([resource])
            )
    for label, broker, entry in (
        ("read only", "1", _set("log.dirs", "/tmp")),
        ("an unknown broker", "9", _set("log.retention.ms", "1")),
    ):
        resource = ConfigResource(ResourceType.BROKER, broker, incremental_configs=[entry])
        see.call(
            f"broker: {label}",
            lambda resource=resource: clients.incremental_alter_configs([resource], request_timeout=3),
        )
    unknown = [ConfigResource(ResourceType.BROKER, "9")]
    see.call("describe an unknown broker", lambda: clients.describe_configs(unknown, request_timeout=3))
    see.call("describe a setting", value, ResourceType.BROKER, "1", "auto.create.topics.enable")
    group = see.name("g")
    for label, entry in (
        ("set", _set("consumer.session.timeout.ms", "50000")),
        ("too low", _set("consumer.session.timeout.ms", "1")),
        ("bad", _set("consumer.session.timeout.ms", "x")),
        ("unknown", _set("no.such", "1")),
        ("share", _set("share.record.lock.duration.ms", "20000")),
        ("delete", _set("consumer.session.timeout.ms", None, operations.DELETE)),
    ):
        resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[entry])
        see.call(f"group: {label}", lambda resource=resource: clients.incremental_alter_configs([resource]))
    see.call("describe a group", value, ResourceType.GROUP, group, "share.record.lock.duration.ms")


def acls_without_an_authorizer(see: Trace) -> None:
    clients = admin(see)
    rule = AclBinding(
        ResourceType.TOPIC,
        see.name("t"),
        ResourcePatternType.LITERAL,
        "User:ann",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    every = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    see.call("create", lambda: list(clients.create_acls([rule]).values()))
    see.call("describe", lambda: clients.describe_acls(every))
    see.call("delete", lambda: list(clients.delete_acls([every]).values()))


def users_with_passwords(see: Trace) -> None:
    clients = admin(see)
    ann, bob = see.name("ann"), see.name("bob")
    sha256, sha512 = ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512
    for label, changes in (
        ("create", [UserScramCredentialUpsertion(ann, ScramCredentialInfo(sha256, 8192), b"secret")]),
        ("salt", [UserScramCredentialUpsertion(ann, ScramCredentialInfo(sha512, 4096), b"secret", b"salt")]),
        ("few iterations", [UserScramCredentialUpsertion(bob, ScramCredentialInfo(sha256, 1), b"secret")]),
        (
            "many iterations",
            [UserScramCredentialUpsertion(bob, ScramCredentialInfo(sha256, 100_000), b"secret")],
        ),
        ("delete none", [UserScramCredentialDeletion(bob, sha256)]),
        (
            "two users",
            [
                UserScramCredentialUpsertion(bob, ScramCredentialInfo(sha256, 4096), b"secret"),
                UserScramCredentialDeletion(see.name("none"), sha256),
            ],
        ),
        ("delete", [UserScramCredentialDeletion(ann, sha256)]),
    ):
        see.call(label, lambda changes=changes: clients.alter_user_scram_credentials(changes))
        users = [ann, bob, see.name("none")]
        see.call(
            f"{label}: users",
            lambda users=users: {
                each: found.exception(20) or sorted(map(_scram, found.result().scram_credential_infos))
                for each, found in clients.describe_user_scram_credentials(users).items()
            },
        )
    everyone = clients.describe_user_scram_credentials().result(20)
    see.note("all users", sorted(each for each in everyone if each in (ann, bob)))
    for user in (ann, bob):
        for mechanism in (sha256, sha512):
            clients.alter_user_scram_credentials([UserScramCredentialDeletion(user, mechanism)])[
                user
            ].exception(20)


def _scram(credential: ScramCredentialInfo) -> Any:
    return str(credential.mechanism), credential.iterations


def the_cluster(see: Trace) -> None:
    clients = admin(see)
    see.call("describe", lambda: clients.describe_cluster())
    see.call("describe with operations", lambda: clients.describe_cluster(include_authorized_operations=True))
    metadata = clients.list_topics(timeout=10)
    see.note("brokers", {number: (each.host, each.port) for number, each in metadata.brokers.items()})
    topic = made(see, "t", 2)
    for label, kind, places in (
        ("preferred", ElectionType.PREFERRED, [TopicPartition(topic, 0)]),
        ("unclean", ElectionType.UNCLEAN, [TopicPartition(topic, 1)]),
        ("no partition", ElectionType.PREFERRED, [TopicPartition(topic, 9)]),
        ("no topic", ElectionType.PREFERRED, [TopicPartition(see.name("no"), 0)]),
        ("nothing", ElectionType.PREFERRED, []),
    ):
        see.call(f"elect {label}", lambda kind=kind, places=places: clients.elect_leaders(kind, places))
    see.call("elect everywhere", lambda: clients.elect_leaders(ElectionType.UNCLEAN, None))


def records_and_offsets(see: Trace) -> None:
    clients = admin(see)
    topic, compact = filled(see, "t", 6, 2), filled(see, "c", 0, 1, cleanup_policy="compact")
    zero, none, nowhere = (
        TopicPartition(topic, 0),
        TopicPartition(topic, 9),
        TopicPartition(see.name("no"), 0),
    )
    for label, spec in (
        ("earliest", OffsetSpec.earliest()),
        ("latest", OffsetSpec.latest()),
        ("largest timestamp", OffsetSpec.max_timestamp()),
        ("timestamp", OffsetSpec.for_timestamp(1015)),
        ("late timestamp", OffsetSpec.for_timestamp(5000)),
        ("timestamp 0", OffsetSpec.for_timestamp(0)),
    ):
        see.call(label, lambda spec=spec: clients.list_offsets({zero: spec}))
        see.call(
            f"{label} of an empty topic",
            lambda spec=spec: clients.list_offsets({TopicPartition(compact, 0): spec}),
        )
    for label, place in (("no partition", none), ("no topic", nowhere)):
        see.call(
            f"latest of {label}",
            lambda place=place: clients.list_offsets({place: OffsetSpec.latest()}, request_timeout=4),
        )
    for label, place in (
        ("some", TopicPartition(topic, 0, 2)),
        ("fewer", TopicPartition(topic, 0, 1)),
        ("too many", TopicPartition(topic, 0, 99)),
        ("a negative offset", TopicPartition(topic, 0, -5)),
        ("all", TopicPartition(topic, 1, OFFSET_END)),
        ("of a compacted topic", TopicPartition(compact, 0, 0)),
        ("of no partition", TopicPartition(topic, 9, 1)),
        ("of no topic", TopicPartition(see.name("no"), 0, 1)),
    ):
        see.call(f"delete {label}", lambda place=place: clients.delete_records([place], request_timeout=5))
    see.call(
        "delete good and bad",
        lambda: clients.delete_records([TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 99)]),
    )
    see.call("earliest after the deletions", lambda: clients.list_offsets({zero: OffsetSpec.earliest()}))


def groups_and_their_offsets(see: Trace) -> None:
    clients = admin(see)
    topic = filled(see, "t", 3, 2)
    none = see.name("none")
    kinds = {"classic": ConsumerGroupType.CLASSIC, "consumer": ConsumerGroupType.CONSUMER}

    def listed(**options: Any) -> Any:
        found = clients.list_consumer_groups(**options).result(20)
        return sorted(
            (each.group_id, str(each.state), str(each.type), each.is_simple_consumer_group)
            for each in found.valid
            if each.group_id.startswith(see.name(""))
        )

    def offsets(group: str, *places: TopicPartition) -> Callable[[], Any]:
        request = [ConsumerGroupTopicPartitions(group, list(places) or None)]
        return lambda: {
            each: found.exception(20) or found.result().topic_partitions
            for each, found in clients.list_consumer_group_offsets(request).items()
        }

    def alter(group: str, *places: TopicPartition) -> Callable[[], Any]:
        request = [ConsumerGroupTopicPartitions(group, list(places))]
        return lambda: {
            each: found.exception(20) or found.result().topic_partitions
            for each, found in clients.alter_consumer_group_offsets(request).items()
        }

    for name, options in PROTOCOLS.items():
        group = see.name(name)
        reader = consumer(see, topic, group_id=group, client_id="programs", **options)
        polled(reader, 20)
        reader.commit(offsets=[TopicPartition(topic, 0, 2, metadata="two")], asynchronous=False)
        see.call(f"{name}: describe", lambda group=group: clients.describe_consumer_groups([group]))
        see.call(
            f"{name}: describe with operations",
            lambda group=group: sorted(
                str(each)
                for each in clients.describe_consumer_groups([group], include_authorized_operations=True)[
                    group
                ]
                .result(20)
                .authorized_operations
            ),
        )
        see.call(f"{name}: list", listed)
        for state in (ConsumerGroupState.STABLE, ConsumerGroupState.EMPTY):
            see.call(f"{name}: list {state}", listed, states={state})
        for kind in kinds.values():
            see.call(f"{name}: list {kind}", listed, types={kind})
        see.call(f"{name}: offsets", offsets(group))
        see.call(
            f"{name}: offsets of some", offsets(group, TopicPartition(topic, 1), TopicPartition(topic, 9))
        )
        see.call(f"{name}: alter with a member", alter(group, TopicPartition(topic, 0, 1)))
        reader.close()
        for label, place in (
            ("alter", TopicPartition(topic, 0, 1, metadata="one")),
            ("alter far", TopicPartition(topic, 1, 1000)),
            ("alter no partition", TopicPartition(topic, 9, 1)),
            ("alter no topic", TopicPartition(see.name("no"), 0, 1)),
            ("alter with large metadata", TopicPartition(topic, 0, 1, metadata="m" * 5000)),
        ):
            see.call(f"{name}: {label}", alter(group, place))
        see.call(f"{name}: offsets after", offsets(group))
        see.call(
            f"{name}: describe the empty one", lambda group=group: clients.describe_consumer_groups([group])
        )
        see.call(f"{name}: list", listed)
        see.call(f"{name}: delete", lambda group=group: clients.delete_consumer_groups([group, none]))
        see.call(f"{name}: offsets after the deletion", offsets(group))
        see.call(f"{name}: list after the deletion", listed)
    see.call("offsets of none", offsets(none))
    see.call("describe none", lambda: clients.describe_consumer_groups([none]))
    see.call("alter creates", alter(see.name("new"), TopicPartition(topic, 0, 1)))
    see.call("describe what it created", lambda: clients.describe_consumer_groups([see.name("new")]))
    see.call("list what it created", listed)
    see.call("the old list", lambda: [str(each.error) for each in clients.list_groups(see.name("new"), 10)])


def requests_that_the_client_rejects(see: Trace) -> None:
    clients = admin(see)
    for label, call in (
        ("no topics", lambda: clients.create_topics([])),
        ("one topic twice", lambda: clients.create_topics([NewTopic(see.name("x"), 1, 1)] * 2)),
        ("delete nothing", lambda: clients.delete_topics([])),
        ("describe nothing", lambda: clients.describe_topics(TopicCollection([]))),
        ("no groups", lambda: clients.describe_consumer_groups([])),
        ("one group twice", lambda: clients.delete_consumer_groups(["a", "a"])),
        ("no users", lambda: clients.alter_user_scram_credentials([])),
        ("no records", lambda: clients.delete_records([])),
        ("no offsets", lambda: clients.list_offsets({})),
        ("no settings", lambda: clients.describe_configs([])),
    ):
        see.call(label, call)
    see.note("the error of a closed port", _closed_port())


def _closed_port() -> Any:
    from confluent_kafka.admin import AdminClient

    lonely = AdminClient({"bootstrap.servers": "127.0.0.1:1", "log_level": 0})
    error = lonely.describe_cluster(request_timeout=2).exception(20)
    return error.args[0].code() == KafkaError._TIMED_OUT if error is not None else None
