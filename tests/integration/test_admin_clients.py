"""Topics and settings with the admin clients of confluent-kafka, kafka-python and aiokafka."""

from __future__ import annotations

import asyncio
import uuid

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    ResourceType,
)

from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.testing import BarnabasBroker


@pytest.fixture
def admin(barnabas_broker):
    return AdminClient({"bootstrap.servers": barnabas_broker.bootstrap_servers})


@pytest.fixture
def name():
    return f"admin-{uuid.uuid4().hex[:12]}"


def done(futures, key=None):
    """Return the result of the only (or the named) future of an admin call."""
    return (next(iter(futures.values())) if key is None else futures[key]).result(60)


def refused(futures):
    with pytest.raises(KafkaException) as error:
        done(futures)
    return error.value.args[0]


def configs(admin, resource):
    return {entry.name: entry for entry in done(admin.describe_configs([resource])).values()}


def test_confluent_kafka_makes_describes_grows_and_deletes_a_topic(admin, name):
    done(admin.create_topics([NewTopic(name, 2, 1, config={"retention.ms": "12345"})]))
    described = done(admin.describe_topics(TopicCollection([name])))
    assert [p.id for p in described.partitions] == [0, 1]
    assert {p.leader.id for p in described.partitions} == {p.isr[0].id for p in described.partitions}
    assert admin.list_topics(name, timeout=60).topics[name].partitions.keys() == {0, 1}
    done(admin.create_partitions([NewPartitions(name, 5)]))
    assert len(admin.list_topics(name, timeout=60).topics[name].partitions) == 5
    done(admin.delete_topics([name]))
    assert name not in admin.list_topics(timeout=60).topics


def test_confluent_kafka_is_told_what_is_wrong(admin, name):
    done(admin.create_topics([NewTopic(name, 2, 1)]))
    assert refused(admin.create_topics([NewTopic(name, 2, 1)])).code() == KafkaError.TOPIC_ALREADY_EXISTS
    error = refused(admin.create_topics([NewTopic(f"{name}-b", 1, 1, config={"retention.ms": "soon"})]))
    assert error.code() == KafkaError.INVALID_CONFIG
    assert "retention.ms" in error.str() and "soon" in error.str()
    error = refused(admin.create_topics([NewTopic(f"{name}-b", 1, 1, config={"no.such.setting": "1"})]))
    assert error.code() == KafkaError.INVALID_CONFIG
    error = refused(admin.create_topics([NewTopic(f"{name}-b", 1, 7)]))
    assert error.code() == KafkaError.INVALID_REPLICATION_FACTOR
    assert refused(admin.create_partitions([NewPartitions(name, 1)])).code() == KafkaError.INVALID_PARTITIONS
    error = refused(admin.delete_topics([f"{name}-nope"]))
    assert error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_confluent_kafka_changes_settings_of_a_topic(admin, name):
    done(admin.create_topics([NewTopic(name, 1, 1)]))
    topic = ConfigResource(ResourceType.TOPIC, name)
    before = configs(admin, topic)
    assert before["retention.ms"].is_default
    entries = [
        ConfigEntry("retention.ms", "777", incremental_operation=AlterConfigOpType.SET),
        ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.APPEND),
    ]
    change = ConfigResource(ResourceType.TOPIC, name, incremental_configs=entries)
    done(admin.incremental_alter_configs([change], validate_only=True))
    assert configs(admin, topic)["retention.ms"].value == before["retention.ms"].value
    done(admin.incremental_alter_configs([change]))
    after = configs(admin, topic)
    assert (after["retention.ms"].value, after["cleanup.policy"].value) == ("777", "delete,compact")
    assert not after["retention.ms"].is_default
    undo = ConfigEntry("retention.ms", None, incremental_operation=AlterConfigOpType.DELETE)
    done(
        admin.incremental_alter_configs(
            [ConfigResource(ResourceType.TOPIC, name, incremental_configs=[undo])]
        )
    )
    assert configs(admin, topic)["retention.ms"].value == before["retention.ms"].value


def test_confluent_kafka_describes_cluster_and_broker(admin, barnabas_broker):
    cluster = admin.describe_cluster().result(60)
    (node,) = cluster.nodes
    assert f"{node.host}:{node.port}" == barnabas_broker.bootstrap_servers
    assert cluster.controller.id == node.id
    assert cluster.cluster_id == admin.list_topics(timeout=60).cluster_id
    settings = configs(admin, ConfigResource(ResourceType.BROKER, str(node.id)))
    assert settings["node.id"].value == str(node.id)
    assert settings["node.id"].is_read_only


def test_setting_of_a_topic_takes_effect_at_once(admin, make_topic, produce, batch):
    topic = make_topic()
    assert produce(topic, batch(bytes(5000))).error_code == 0
    entry = ConfigEntry("max.message.bytes", "1000", incremental_operation=AlterConfigOpType.SET)
    change = ConfigResource(ResourceType.TOPIC, topic.name, incremental_configs=[entry])
    done(admin.incremental_alter_configs([change]))
    assert produce(topic, batch(bytes(5000))).error_code == KafkaError.MSG_SIZE_TOO_LARGE


def test_setting_of_all_brokers_takes_effect_at_once_for_topics_that_do_not_set_it(
    barnabas_fresh_broker, connect, make_topic, produce, batch
):
    def set_limit(wire, operation, value=None):
        config = AlterableConfig(name="message.max.bytes", config_operation=operation, value=value)
        every_broker = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        (result,) = wire(IncrementalAlterConfigsRequest(resources=[every_broker])).responses
        assert result.error_code == 0, result

    wire = connect(barnabas_fresh_broker)
    plain = make_topic(by=wire)
    own = make_topic(by=wire, **{"max.message.bytes": "10000"})
    set_limit(wire, 0, "1000")
    assert produce(plain, batch(bytes(5000)), by=wire).error_code == KafkaError.MSG_SIZE_TOO_LARGE
    assert produce(own, batch(bytes(5000)), by=wire).error_code == 0
    barnabas_fresh_broker.restart()
    wire = connect(barnabas_fresh_broker)
    assert produce(plain, batch(bytes(5000)), by=wire).error_code == KafkaError.MSG_SIZE_TOO_LARGE
    set_limit(wire, 1)
    assert produce(plain, batch(bytes(5000)), by=wire).error_code == 0


def test_kafka_python_makes_describes_configures_and_deletes_a_topic(barnabas_broker, name):
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewPartitions, NewTopic

    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
    try:
        admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "12345"})])
        assert name in admin.list_topics()
        (described,) = admin.describe_topics([name])
        assert len(described["partitions"]) == 2
        admin.create_partitions({name: NewPartitions(3)})
        shown = admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
        assert "12345" in str(shown)
        admin.delete_topics([name])
        assert name not in admin.list_topics()
        assert admin.describe_cluster()["cluster_id"]
    finally:
        admin.close()


def test_kafka_python_knows_all_apis_that_the_broker_lists(barnabas_broker):
    from kafka.admin import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
    try:
        assert {"Produce", "Fetch"} <= {api.name for api in admin.api_versions()}
    finally:
        admin.close()


def test_min_insync_replicas_is_one_value_of_the_cluster_which_outlives_what_a_broker_is_started_with(
    tmp_path, name
):
    """Kafka has this rule since 4.1, if eligible leader replicas are on (KIP-966)."""
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType, KafkaAdminClient

    minimum = "min.insync.replicas"
    with BarnabasBroker({minimum: "2"}, data=tmp_path) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        done(admin.create_topics([NewTopic(name, 1, 1)]))
        (broker_id,) = admin.list_topics(timeout=60).brokers
        one, topic = ConfigResource(ResourceType.BROKER, str(broker_id)), ConfigResource("topic", name)
        for resource in one, topic:
            shown = configs(admin, resource)[minimum]
            assert (shown.value, shown.source) == ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG.value)
        set_three = ConfigEntry(minimum, "3", incremental_operation=AlterConfigOpType.SET)
        one.add_incremental_config(set_three)
        error = refused(admin.incremental_alter_configs([one]))
        assert error.code() == KafkaError.INVALID_CONFIG
    with BarnabasBroker({minimum: "1"}, data=tmp_path) as broker:
        other = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
        try:
            asked = [Resource(ConfigResourceType.TOPIC, name, {minimum: None})]
            shown = other.describe_configs(asked, config_filter="all")
            assert shown["topic"][name][minimum]["value"] == "2"
        finally:
            other.close()


def test_aiokafka_makes_and_deletes_a_topic(barnabas_broker, name):
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def scenario():
        admin = AIOKafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, 2, 1)])
            assert name in await admin.list_topics()
            await admin.delete_topics([name])
            assert name not in await admin.list_topics()
        finally:
            await admin.close()

    asyncio.run(scenario())
