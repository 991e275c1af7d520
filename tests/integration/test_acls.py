"""ACLs as clients see them: the usual clients, and the objects that are hidden from them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import TopicAuthorizationFailedError
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from kafka import KafkaConsumer
from kafka.errors import TopicAuthorizationFailedError as KafkaPythonTopicError
from tests.integration.acl_broker import PASSWORD, AclBroker
from tests.integration.acl_walk import prepare
from tests.integration.conftest import Wire

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.kafka.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.describe_acls import DescribeAclsRequest
from barnabas.kafka.protocol.messages.describe_cluster import DescribeClusterRequest
from barnabas.kafka.protocol.messages.describe_topic_partitions import DescribeTopicPartitionsRequest
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_groups import ListGroupsRequest
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch

ANY = AclBindingFilter(
    ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY, AclPermissionType.ANY
)

KINDS = {"topic": ResourceType.TOPIC, "group": ResourceType.GROUP, "cluster": ResourceType.BROKER}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    with AclBroker(tmp_path_factory.mktemp("acls")) as broker:
        broker.add("alice", "bob")
        admin = AdminClient({"bootstrap.servers": broker.open_address})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("mine", "theirs")]).values():
            future.result(60)
        wire = Wire(broker.open_address)
        prepare(wire)
        wire.close()
        yield broker


@pytest.fixture
def allow(broker: AclBroker) -> Iterator[Callable[..., None]]:
    """Add a rule: `allow("topic", "mine", "read")`. The rules are deleted after the test."""
    admin = AdminClient({"bootstrap.servers": broker.open_address})

    def add(
        kind: str,
        name: str,
        operation: str,
        user: str = "alice",
        *,
        deny: bool = False,
        prefixed: bool = False,
    ) -> None:
        rule = AclBinding(
            KINDS[kind],
            name,
            ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
            f"User:{user}",
            "*",
            AclOperation[operation.upper()],
            AclPermissionType.DENY if deny else AclPermissionType.ALLOW,
        )
        admin.create_acls([rule])[rule].result(60)

    yield add
    admin.delete_acls([ANY])[ANY].result(60)


@pytest.fixture
def alice(broker: AclBroker) -> Iterator[Wire]:
    alice = broker.connect("alice")
    yield alice
    alice.close()


def settings(broker: AclBroker, user: str = "alice", **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": PASSWORD,
        **more,
    }


def produced(broker: AclBroker, topic: str, **more: Any) -> KafkaError | None:
    errors: list[KafkaError | None] = []
    producer = Producer(settings(broker, **{"message.timeout.ms": 60_000, **more}))
    producer.produce(topic, b"value", on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(120) == 0
    return errors[0]


def test_a_producer_writes_where_it_may_and_is_told_where_not(broker, allow):
    error = produced(broker, "mine")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow("topic", "mine", "write")
    assert produced(broker, "mine") is None
    # WRITE on a topic is enough for an idempotent producer (KIP-679)
    assert produced(broker, "mine", **{"enable.idempotence": True}) is None
    allow("topic", "mine", "write", deny=True)
    error = produced(broker, "mine")
    assert error is not None and error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED


def test_a_consumer_reads_with_read_on_topic_and_group(broker, allow):
    allow("topic", "mine", "read")
    allow("topic", "mine", "write")
    assert produced(broker, "mine") is None
    consumer = Consumer(settings(broker, **{"group.id": "readers", "auto.offset.reset": "earliest"}))
    try:
        consumer.subscribe(["mine"])
        with pytest.raises(KafkaException) as refused:
            message = consumer.poll(60)
            raise KafkaException(message.error())
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        allow("group", "read", "read", prefixed=True)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                break
        assert message is not None and message.value() == b"value"
        consumer.commit(message, asynchronous=False)
    finally:
        consumer.close()


def test_aiokafka_and_kafka_python_are_told_that_a_topic_is_not_theirs(broker, allow):
    allow("topic", "mine", "write")

    async def scenario() -> None:
        login = {
            "bootstrap_servers": broker.address,
            "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "PLAIN",
            "sasl_plain_username": "alice",
            "sasl_plain_password": PASSWORD,
        }
        async with AIOKafkaProducer(**login) as producer:
            await producer.send_and_wait("mine", b"value")
        consumer = AIOKafkaConsumer("mine", group_id=None, auto_offset_reset="earliest", **login)
        await consumer.start()
        try:
            with pytest.raises(TopicAuthorizationFailedError):
                await asyncio.wait_for(consumer.getone(), 60)
        finally:
            await consumer.stop()

    asyncio.run(scenario())
    consumer = KafkaConsumer(
        "mine",
        bootstrap_servers=broker.address,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="PLAIN",
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
        auto_offset_reset="earliest",
        group_id=None,
    )
    try:
        with pytest.raises(KafkaPythonTopicError):
            for _ in range(120):
                consumer.poll(timeout_ms=500)
    finally:
        consumer.close()


def test_a_topic_that_one_may_not_describe_is_answered_the_same_whether_it_exists_or_not(alice, allow):
    def asked(name: str) -> Any:
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name)], include_topic_authorized_operations=True
        )
        (topic,) = alice(request).topics
        topic.name = ""
        return topic

    assert asked("theirs") == asked("nowhere")
    assert asked("theirs").error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [topic.name for topic in alice(MetadataRequest(topics=None)).topics] == []
    assert alice(DescribeTopicPartitionsRequest(response_partition_limit=10)).topics == []
    allow("topic", "mine", "read")
    (topic,) = alice(MetadataRequest(topics=None, include_topic_authorized_operations=True)).topics
    assert (topic.name, topic.topic_authorized_operations) == ("mine", 1 << 3 | 1 << 8)
    assert [t.name for t in alice(DescribeTopicPartitionsRequest(response_partition_limit=10)).topics] == [
        "mine"
    ]


def test_the_name_of_a_topic_by_id_is_told_to_who_may_describe_but_not_delete_it(alice, allow):
    allow("topic", "mine", "describe")
    (mine,) = alice(MetadataRequest(topics=[MetadataRequestTopic(name="mine")])).topics

    def deleted() -> Any:
        (result,) = alice(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=mine.topic_id)])).responses
        return result.name, result.error_code

    assert deleted() == ("mine", ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    allow("topic", "mine", "describe", deny=True)
    assert deleted() == (None, ErrorCode.TOPIC_AUTHORIZATION_FAILED)


def test_a_missing_topic_is_made_for_who_may_create_it(alice, allow):
    request = MetadataRequest(topics=[MetadataRequestTopic(name="made")], allow_auto_topic_creation=True)
    allow("topic", "made", "describe")
    assert alice(request).topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow("topic", "made", "create")
    assert alice(request).topics[0].error_code == 0


def test_the_settings_of_a_new_topic_are_shown_to_who_may_see_them(alice, allow):
    def created(name: str) -> Any:
        topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1)
        return alice(CreateTopicsRequest(topics=[topic], timeout_ms=60_000)).topics[0]

    allow("cluster", "kafka-cluster", "create")
    made = created("made-1")
    assert (made.error_code, made.topic_config_error_code, made.num_partitions) == (0, 29, -1)
    allow("topic", "made-2", "describe_configs")
    assert created("made-2").num_partitions == 1


def test_operations_on_the_cluster_are_told_to_who_may_describe_it(alice, allow):
    request = DescribeClusterRequest(include_cluster_authorized_operations=True)
    assert alice(request).cluster_authorized_operations == 0
    allow("cluster", "kafka-cluster", "describe")
    assert alice(request).cluster_authorized_operations == 1 << 8


def test_groups_are_listed_to_who_may_describe_them(broker, alice, allow):
    admin = Wire(broker.open_address)
    for group in ("ours", "others"):
        join = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id="m",
            rebalance_timeout_ms=10_000,
            subscribed_topic_names=["mine"],
            topic_partitions=[],
        )
        assert admin(join).error_code == 0
    admin.close()

    def listed() -> set[str]:
        return {group.group_id for group in alice(ListGroupsRequest()).groups}

    assert listed() == set()
    allow("group", "ours", "describe")
    assert listed() == {"ours"}
    describe = ConsumerGroupDescribeRequest(group_ids=["ours"])
    assert alice(describe).groups[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    allow("topic", "mine", "describe")
    assert alice(describe).groups[0].error_code == 0
    allow("cluster", "kafka-cluster", "describe")
    assert listed() >= {"ours", "others"}


def test_an_idempotent_producer_needs_write_on_some_topic(alice, allow):
    request = InitProducerIdRequest(transactional_id=None)
    assert alice(request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allow("topic", "never-made", "write", prefixed=True)
    assert alice(request).error_code == 0
    allow("topic", "*", "write", deny=True)
    assert alice(request).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_the_producer_ids_of_brokers_are_for_brokers(broker, alice, allow):
    def produce(wire: Wire, sequence: int) -> int:
        batch = encode_batch(
            [Record(None, b"forged")], producer_id=2**62, producer_epoch=0, base_sequence=sequence
        )
        data = PartitionProduceData(index=0, records=batch)
        request = ProduceRequest(acks=-1, topic_data=[TopicProduceData(name="mine", partition_data=[data])])
        return wire(request, 12).responses[0].partition_responses[0].error_code

    allow("topic", "mine", "write")
    assert produce(alice, 0) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    super_user = Wire(broker.open_address)
    assert produce(super_user, 0) == 0
    super_user.close()
    assert produce(alice, 1) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allow("cluster", "kafka-cluster", "cluster_action")
    assert produce(alice, 1) == 0


def test_a_fetch_session_loses_a_topic_when_its_rule_goes_and_no_one_else_has_the_session(
    broker, alice, allow
):
    def wanted(topic: str) -> FetchTopic:
        return FetchTopic(topic=topic, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])

    allow("topic", "theirs", "read")
    opened = alice(FetchRequest(topics=[wanted("theirs")], session_epoch=0, max_bytes=1000), 12)
    assert opened.session_id
    bob = broker.connect("bob")
    follow_up = FetchRequest(session_id=opened.session_id, session_epoch=1, max_bytes=1000, max_wait_ms=0)
    assert bob(follow_up, 12).error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    bob.close()
    assert alice(follow_up, 12).responses == []
    allow("topic", "theirs", "read", deny=True)
    changed = FetchRequest(
        session_id=opened.session_id, session_epoch=2, topics=[wanted("theirs")], max_bytes=1000
    )
    (answer,) = alice(changed, 12).responses
    assert answer.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_replica_id_is_for_brokers(alice, allow):
    topic = FetchTopic(topic="mine", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
    allow("topic", "mine", "read")
    request = FetchRequest(replica_id=1, topics=[topic], session_epoch=-1, max_bytes=1000)
    (answer,) = alice(request, 12).responses
    assert answer.partitions[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_a_regular_expression_finds_only_what_its_member_may_describe(alice, allow):
    allow("group", "by-regex", "read")
    allow("topic", "mine", "describe")
    request = ConsumerGroupHeartbeatRequest(
        group_id="by-regex",
        member_id="m",
        rebalance_timeout_ms=10_000,
        subscribed_topic_regex="mine|theirs",
        topic_partitions=[],
    )
    answer = alice(request, 1)
    assert answer.error_code == 0
    topics: set[bytes] = set()
    deadline = time.monotonic() + 60
    while not topics and time.monotonic() < deadline:
        time.sleep(0.05)
        answer = alice(
            ConsumerGroupHeartbeatRequest(
                group_id="by-regex", member_id="m", member_epoch=answer.member_epoch
            ),
            1,
        )
        topics = {each.topic_id for each in (answer.assignment.topic_partitions if answer.assignment else ())}
    (mine,) = alice(MetadataRequest(topics=[MetadataRequestTopic(name="mine")])).topics
    assert topics == {mine.topic_id}
    request.subscribed_topic_regex, request.subscribed_topic_names = None, ["mine", "theirs"]
    assert alice(request, 1).error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_librdkafka_manages_rules(broker, allow):
    allow("topic", "orders", "read")
    allow("group", "all of/them*", "delete", prefixed=True)
    admin = AdminClient({"bootstrap.servers": broker.open_address})
    found = {(acl.restype, acl.name, acl.operation) for acl in admin.describe_acls(ANY).result(60)}
    assert found == {
        (ResourceType.TOPIC, "orders", AclOperation.READ),
        (ResourceType.GROUP, "all of/them*", AclOperation.DELETE),
    }
    other = AdminClient(settings(broker))
    with pytest.raises(KafkaException) as error:
        other.delete_acls([ANY])[ANY].result(60)
    assert error.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_without_an_authorizer_there_are_no_rules(wire):
    request = DescribeAclsRequest(
        resource_type_filter=1, operation=1, permission_type=1, pattern_type_filter=1
    )
    assert wire(request).error_code == ErrorCode.SECURITY_DISABLED
