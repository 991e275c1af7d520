"""`barnabas.client`: producer, consumer and admin against a broker."""

import threading

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client import Admin, ClientError, Consumer, Producer


@pytest.fixture
def servers(barnabas_broker):
    return barnabas_broker.bootstrap_servers


@pytest.fixture
def topic(barnabas_topic):
    return barnabas_topic


def texts(records):
    return [record.text for record in records]


def test_values_of_every_kind_come_back(servers, topic):
    with Producer(servers) as producer:
        producer.send(topic, b"\x00\xff", key=b"k")
        producer.send(topic, "text", key="schlüssel", headers={"h": "v", "n": None})
        producer.send(topic, {"a": [1]}, headers=[("h", b"1"), ("h", b"2")])
        producer.send(topic, None, key="gone", timestamp_ms=1_700_000_000_000)
    with Consumer(servers, topic) as consumer:
        raw, text, json_value, tombstone = consumer.take(4)
    assert (raw.value, raw.text, raw.topic_partition) == (b"\x00\xff", "\x00\\xff", TopicPartition(topic, 0))
    assert (text.key_text, text.text, text.headers) == ("schlüssel", "text", (("h", b"v"), ("n", None)))
    assert (json_value.json(), json_value.headers) == ({"a": [1]}, (("h", b"1"), ("h", b"2")))
    assert (tombstone.value, tombstone.json(), tombstone.timestamp_ms) == (None, None, 1_700_000_000_000)


def test_a_delivery_tells_where_the_record_lies(servers, topic):
    delivered = []
    with Producer(servers) as producer:
        for number in range(3):
            producer.send(topic, str(number), on_delivery=delivered.append)
    assert [(record.topic_partition, record.offset) for record in delivered] == [
        ((topic, 0), n) for n in range(3)
    ]


def test_a_record_that_cannot_be_delivered_is_not_missed(servers, barnabas_broker, topic):
    barnabas_broker.admin().alter_configs("topic", topic, set={"max.message.bytes": "500"})
    with pytest.raises(KafkaError) as caught, Producer(servers) as producer:
        producer.send(topic, "x" * 1000)
    assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_a_flush_that_takes_too_long_says_how_much_is_left():
    producer = Producer("127.0.0.1:1")
    producer.send("t", "x")
    with pytest.raises(ClientError, match="1 records were not acknowledged"):
        producer.flush(0.1)
    assert len(producer) == 1


def test_the_record_that_an_error_interrupted_comes_again(servers, barnabas_broker, topic):
    barnabas_broker.produce(topic, "a", "b", "c")
    group = f"group-of-{topic}"
    with pytest.raises(ZeroDivisionError), Consumer(servers, topic, group=group) as consumer:
        for record in consumer:
            assert record.text in ("a", "b")
            if record.text == "b":
                raise ZeroDivisionError
    with Consumer(servers, topic, group=group) as consumer:
        assert texts(consumer.take(2)) == ["b", "c"]


def test_a_commit_by_hand_covers_all_that_was_taken(servers, barnabas_broker, topic):
    barnabas_broker.produce(topic, "a", "b", "c")
    group = f"group-of-{topic}"
    with Consumer(servers, topic, group=group, enable_auto_commit=False) as consumer:
        consumer.take(2)
        consumer.commit()
        assert barnabas_broker.admin().group_offsets(group) == {(topic, 0): 2}
        consumer.take(1)
    assert barnabas_broker.admin().group_offsets(group) == {(topic, 0): 2}


def test_without_a_group_nothing_is_remembered(servers, barnabas_broker, topic):
    barnabas_broker.produce(topic, "a")
    for _ in range(2):
        with Consumer(servers, topic) as consumer:
            assert texts(consumer.take(1)) == ["a"]


def test_latest_is_the_end_when_the_consumer_is_made(servers, barnabas_broker):
    with Producer(servers, linger_ms=0) as producer:
        for number in range(5):
            topic = barnabas_broker.create_topic(f"from-its-end-{number}")
            producer.send(topic, "a")
            producer.flush()
            with Consumer(servers, topic, start="latest") as consumer:
                producer.send(topic, "b")
                producer.flush()
                assert texts(consumer.take(1)) == ["b"]


def test_a_consumer_waits_at_the_end_for_the_next_record(servers, barnabas_broker, topic):
    with Consumer(servers, topic) as consumer:
        later = threading.Timer(0.5, barnabas_broker.produce, (topic, "a"))
        later.start()
        record = consumer.poll(60)
        later.join()
    assert record is not None
    assert record.text == "a"


def test_too_few_records_are_said(servers, topic):
    with Consumer(servers, topic) as consumer, pytest.raises(ClientError, match="only 0 of 1 records"):
        consumer.take(1, timeout=0.2)


def test_records_that_arrived_for_a_take_that_timed_out_are_not_processed(servers, barnabas_broker, topic):
    barnabas_broker.produce(topic, "a")
    with Consumer(servers, topic, group=f"late-{topic}") as consumer:
        consumer.take(1, 60)
    barnabas_broker.produce(topic, "b")
    with Consumer(servers, topic, group=f"late-{topic}") as consumer:
        while not consumer._pending:
            with pytest.raises(ClientError, match="of 2 records"):
                consumer.take(2, timeout=1)
        consumer.commit()
        assert list(barnabas_broker.admin().group_offsets(f"late-{topic}").values()) == [1]
        barnabas_broker.produce(topic, "c")
        assert texts(consumer.take(2, 60)) == ["b", "c"]
    assert list(barnabas_broker.admin().group_offsets(f"late-{topic}").values()) == [3]


def test_reading_up_to_given_ends_stops_there(servers, barnabas_broker):
    barnabas_broker.create_topic("in-parts", 3)
    with Producer(servers) as producer:
        for number in range(30):
            producer.send("in-parts", str(number), partition=number % 3)
    ends = {TopicPartition("in-parts", 0): 5, TopicPartition("in-parts", 2): 10}
    with Consumer(servers) as consumer:
        consumer.assign(dict.fromkeys(ends, 0))
        records = [record for batch in consumer.read_until(ends) for record in batch]
    assert (
        sorted(record.topic_partition for record in records) == [("in-parts", 0)] * 5 + [("in-parts", 2)] * 10
    )


def damage(broker, byte):
    """Stop the broker, invert a byte of the first batch of orders-0, and start the broker again."""
    broker.stop()
    [segment] = broker.data.glob("**/orders-0/00000000000000000000.log")
    with segment.open("r+b") as file:
        file.seek(byte)
        [value] = file.read(1)
        file.seek(byte)
        file.write(bytes([value ^ 0xFF]))
    broker.start()


@pytest.mark.parametrize("byte", [65, 80], ids=["the length of a record", "a value"])
def test_a_damaged_batch_is_an_error_that_names_it(barnabas_fresh_broker, byte):
    barnabas_fresh_broker.create_topic("orders")
    for _ in range(3):  # a start does not read the first batches of a log
        barnabas_fresh_broker.produce("orders", "two apples" * 1000)
    damage(barnabas_fresh_broker, byte)
    with (
        Consumer(barnabas_fresh_broker.bootstrap_servers, "orders") as consumer,
        pytest.raises(ClientError, match=r"orders-0: .* offset 0 .* CRC"),
    ):
        consumer.take(3, timeout=10)


def test_a_partition_that_is_not_served_is_named(barnabas_fresh_broker):
    barnabas_fresh_broker.create_topic("orders")
    barnabas_fresh_broker.produce("orders", "two apples" * 10)
    damage(barnabas_fresh_broker, 80)
    with (
        Consumer(barnabas_fresh_broker.bootstrap_servers) as consumer,
        pytest.raises(KafkaError, match="orders-0: ") as caught,
    ):
        consumer.watermarks(TopicPartition("orders", 0))
    assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_missing_topic_is_named(servers):
    with pytest.raises(KafkaError, match="there is no topic nowhere"):
        Consumer(servers, "nowhere")
    with pytest.raises(KafkaError, match="there is no topic nowhere"):
        Admin(servers).describe_topics(["nowhere"])


def test_nobody_there_is_said_in_time():
    with pytest.raises(ClientError, match=r"no broker answers at 127\.0\.0\.1:1"):
        Admin("127.0.0.1:1", timeout=0.5).topics()


def test_the_cluster_describes_itself(servers, barnabas_broker):
    cluster = Admin(servers).cluster()
    assert [f"{node.host}:{node.port}" for node in cluster.nodes] == [servers]
    assert cluster.controller == cluster.nodes[0].id


def test_a_keys_partition_is_the_java_clients(servers, barnabas_broker):
    barnabas_broker.create_topic("by-key", 10)
    delivered = []
    with Producer(servers) as producer:
        for key in ("a", "order-1", "21"):
            producer.send("by-key", "v", key=key, on_delivery=delivered.append)
    # MurmurHash2 as org.apache.kafka.common.utils.Utils has it, its sign bit dropped, modulo 10.
    assert {record.key_text: record.partition for record in delivered} == {"a": 4, "order-1": 6, "21": 0}


def test_an_admin_outlives_its_brokers_restart(barnabas_fresh_broker):
    broker = barnabas_fresh_broker
    place = TopicPartition(broker.create_topic("orders"), 0)
    admin = broker.admin(timeout=10)
    admin.set_group_offsets("app", {place: 5})
    broker.stop()
    with pytest.raises(ClientError):
        admin.topics()  # it has lost every broker when this gives up
    broker.start()
    assert admin.group_offsets("app") == {place: 5}


def test_a_name_that_no_topic_can_have_is_told_in_one_line(barnabas_broker):
    name = "x" * 3000
    with barnabas_broker.producer() as producer, pytest.raises(ClientError, match="not a valid topic name"):
        producer.ensure_topic(name)
    with pytest.raises(ClientError, match="not a valid topic name"):
        barnabas_broker.consumer(name)
