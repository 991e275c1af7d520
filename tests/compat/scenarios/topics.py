"""Topics, partitions, settings and the cluster."""

from __future__ import annotations

from barnabas.kafka.protocol.messages.alter_configs import AlterableConfig as Config
from barnabas.kafka.protocol.messages.alter_configs import AlterConfigsRequest
from barnabas.kafka.protocol.messages.alter_configs import AlterConfigsResource as Resource
from barnabas.kafka.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import AlterableConfig as Change
from barnabas.kafka.protocol.messages.incremental_alter_configs import AlterConfigsResource as Changed
from barnabas.kafka.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

UNKNOWN_ID = b"no such topic id"
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


def create(*topics: CreatableTopic, validate_only: bool = False) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=list(topics), timeout_ms=10_000, validate_only=validate_only)


def new(
    name: str, partitions: int = 1, replicas: int = 1, assigned: dict[int, list[int]] | None = None, **config
):
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replicas,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=ids)
            for index, ids in (assigned or {}).items()
        ],
        configs=[CreatableTopicConfig(name=key.replace("_", "."), value=config[key]) for key in config],
    )


def names_that_a_topic_may_have(wire):
    for name in ("", ".", "..", "a/b", "ü", "x" * 249, "x" * 250, wire.name("Fine_1")):
        yield create(new(name), validate_only=True)
    yield create(new(wire.name("a_b")))
    yield create(new(wire.name("a.b")))  # collides with it


def sizes_that_a_topic_may_have(wire):
    name = wire.name("t")
    for partitions, replicas in ((0, 1), (-2, 1), (1, 0), (1, 2), (1, -2), (-1, -1), (-1, 1), (1, -1)):
        yield create(new(name, partitions, replicas), validate_only=True)
    yield create(new(name, -1, -1, {0: [1], 1: [1]}), validate_only=True)
    yield create(new(name, -1, -1, {0: [1], 2: [1]}), validate_only=True)
    yield create(new(name, -1, -1, {0: [1, 1]}), validate_only=True)
    yield create(new(name, -1, -1, {0: [77]}), validate_only=True)
    yield create(new(name, -1, -1, {0: []}), validate_only=True)
    yield create(new(name, 1, 1, {0: [1]}), validate_only=True)
    yield create(new(name, 2, -1, {0: [1]}), validate_only=True)


def settings_that_a_topic_may_have(wire):
    name = wire.name("t")
    for config in (
        {"retention_ms": "5"},
        {"retention_ms": "soon"},
        {"retention_ms": "-2"},
        {"retention_ms": None},
        {"retention_ms": ""},
        {"no_such": "1"},
        {"cleanup_policy": "compact,delete"},
        {"cleanup_policy": "compact, delete"},
        {"cleanup_policy": "shred"},
        {"cleanup_policy": ""},
        {"compression_type": "lz4"},
        {"compression_type": "rar"},
        {"max_message_bytes": "-1"},
        {"segment_bytes": "13"},
        {"message_timestamp_type": "LogAppendTime"},
        {"message_timestamp_type": "logappendtime"},
        {"min_insync_replicas": "0"},
    ):
        yield create(new(name, **config), validate_only=True)


def topics_come_and_go(wire):
    name = wire.topic("t", 2)
    yield create(new(name))
    yield create(new(wire.name("twice")), new(wire.name("twice")))
    yield create(new(wire.name("good")), new("bad/name"))
    for count, assigned in (
        (2, None),
        (1, None),
        (0, None),
        (-1, None),
        (3, None),
        (5, [[1]]),
        (4, [[1]]),
        (5, [[9]]),
    ):
        assignments = (
            None if assigned is None else [CreatePartitionsAssignment(broker_ids=ids) for ids in assigned]
        )
        topic = CreatePartitionsTopic(name=name, count=count, assignments=assignments)
        yield CreatePartitionsRequest(topics=[topic], timeout_ms=10_000)
    yield CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name="nowhere", count=3, assignments=None)], timeout_ms=10_000
    )
    more = CreatePartitionsTopic(name=name, count=9, assignments=None)
    yield CreatePartitionsRequest(topics=[more], timeout_ms=10_000, validate_only=True)
    yield CreatePartitionsRequest(topics=[more, more], timeout_ms=10_000)

    state = DeleteTopicState
    yield DeleteTopicsRequest(topic_names=["nowhere"], topics=[state(name="nowhere")], timeout_ms=10_000)
    yield DeleteTopicsRequest(
        topic_names=["nowhere"], topics=[state(name=None, topic_id=UNKNOWN_ID)], timeout_ms=10_000
    )
    gone = wire.topic("gone")
    yield DeleteTopicsRequest(
        topic_names=[gone], topics=[state(name=None, topic_id=wire.topic_id(gone))], timeout_ms=10_000
    )
    yield DeleteTopicsRequest(topic_names=[name, name], topics=[state(name=name), state(name=name)])


def metadata_of_topics(wire):
    topic = wire.topic("t", 3)
    # Up to v3 a client cannot ask not to create: "nowhere" would come to be.
    for name in (topic, "bad/name", "", *(["nowhere"] if wire.level >= 4 else [])):
        yield MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
    by_id = MetadataRequestTopic(name=None, topic_id=wire.topic_id(topic))
    unknown = MetadataRequestTopic(name=None, topic_id=UNKNOWN_ID)
    if wire.level >= 12:  # by id since v12
        for topics in ([by_id], [unknown], [by_id, unknown]):
            yield MetadataRequest(topics=topics, allow_auto_topic_creation=False)
    yield MetadataRequest(
        topics=[MetadataRequestTopic(name=topic)],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )


def partitions_of_topics_page_by_page(wire):
    one, two = wire.topic("a", 3), wire.topic("b", 2)
    both = [TopicRequest(name=one), TopicRequest(name=two)]
    yield DescribeTopicPartitionsRequest(topics=both)
    yield DescribeTopicPartitionsRequest(topics=both, response_partition_limit=2)
    cursor = Cursor(topic_name=one, partition_index=2)
    yield DescribeTopicPartitionsRequest(topics=both, response_partition_limit=2, cursor=cursor)
    yield DescribeTopicPartitionsRequest(topics=[TopicRequest(name="nowhere")])
    yield DescribeTopicPartitionsRequest(topics=both, cursor=Cursor(topic_name=two, partition_index=-1))


def cluster(wire):
    yield DescribeClusterRequest()
    yield DescribeClusterRequest(include_cluster_authorized_operations=True)
    yield DescribeClusterRequest(endpoint_type=2)
    yield DescribeClusterRequest(endpoint_type=7)


def settings_described(wire):
    topic = wire.topic("t", retention_ms="1234", cleanup_policy="compact")
    for kind, name, keys in (
        (TOPIC, topic, ["cleanup.policy", "segment.bytes", "max.message.bytes"]),
        (TOPIC, topic, ["no.such"]),
        (TOPIC, "nowhere", ["segment.bytes"]),
        (TOPIC, "bad/name", ["retention.ms"]),
        (TOPIC, "", ["retention.ms"]),
        (BROKER, "1", ["log.segment.bytes", "message.max.bytes"]),
        (BROKER, "77", ["log.segment.bytes"]),
        (BROKER, "one", ["log.segment.bytes"]),
        (99, "1", []),
        (0, "1", []),
    ):
        resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
        yield DescribeConfigsRequest(resources=[resource], include_synonyms=True)
    twice = DescribeConfigsResource(
        resource_type=TOPIC, resource_name=topic, configuration_keys=["retention.ms"]
    )
    yield DescribeConfigsRequest(resources=[twice, twice])


def settings_changed_one_by_one(wire):
    topic = wire.topic("t")

    def change(
        *changes: tuple[str, int, str | None], kind: int = TOPIC, name: str = topic, validate: bool = False
    ):
        configs = [Change(name=key, config_operation=how, value=value) for key, how, value in changes]
        resource = Changed(resource_type=kind, resource_name=name, configs=configs)
        return IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate)

    yield change(("retention.ms", SET, "999"))
    yield change(("retention.ms", SET, "soon"))
    yield change(("retention.ms", SET, None))
    yield change(("retention.ms", APPEND, "1"))
    yield change(("no.such", SET, "1"))
    yield change(("no.such", DELETE, None))
    yield change(("cleanup.policy", APPEND, "compact"))
    yield change(("cleanup.policy", APPEND, "compact"))
    yield change(("cleanup.policy", SUBTRACT, "delete"))
    yield change(("cleanup.policy", SUBTRACT, "delete"))
    yield change(("cleanup.policy", APPEND, "shred"))
    yield change(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))
    yield change(("segment.bytes", SET, "2000000"), validate=True)
    yield change(("retention.ms", SET, "1"), name="nowhere")
    yield change(("retention.ms", SET, "1"), name="")
    yield change(("retention.ms", SET, "1"), kind=99)
    yield change(("message.max.bytes", SET, "-5"), kind=BROKER, name="1")
    yield change(("node.id", SET, "5"), kind=BROKER, name="1")
    yield change(("message.max.bytes", SET, "5"), kind=BROKER, name="77")
    yield change(("message.max.bytes", SET, "5"), kind=BROKER, name="one")
    yield change()
    wanted = ["cleanup.policy", "segment.bytes"]
    described = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=wanted)
    wire.topic("later")  # a broker that knows of it knows of every change before it
    yield DescribeConfigsRequest(resources=[described], include_synonyms=True)


def settings_changed_as_a_whole(wire):
    topic = wire.topic("t", retention_ms="1", segment_bytes="2000000")

    def whole(name: str, *configs: Config, validate: bool = False) -> AlterConfigsRequest:
        resource = Resource(resource_type=TOPIC, resource_name=name, configs=list(configs))
        return AlterConfigsRequest(resources=[resource], validate_only=validate)

    yield whole(topic, Config(name="max.message.bytes", value="777"))
    wanted = ["retention.ms", "segment.bytes", "max.message.bytes"]
    described = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=wanted)
    wire.topic("later")  # a broker that knows of it knows of every change before it
    yield DescribeConfigsRequest(resources=[described])
    yield whole(topic, Config(name="no.such", value="1"))
    yield whole(topic, Config(name="retention.ms", value="soon"))
    yield whole(topic, Config(name="retention.ms", value=None))
    yield whole(topic, Config(name="retention.ms", value="3"), Config(name="retention.ms", value="4"))
    yield whole("nowhere", Config(name="retention.ms", value="3"))
    yield whole(topic, validate=True)
    yield DescribeConfigsRequest(resources=[described])
