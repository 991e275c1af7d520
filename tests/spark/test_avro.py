"""Registered Avro in DataFrames, with a live registry, broker and Spark, in batch and in streams."""

from __future__ import annotations

import itertools
import json

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.spark.avro import dead_letters, decode_avro, encode_avro

_numbers = itertools.count()


def order(*more):
    fields = [{"name": "id", "type": "long"}, {"name": "item", "type": "string"}, *more]
    return json.dumps({"type": "record", "name": "Order", "fields": fields})


OLD = order()
NEW = order({"name": "price", "type": ["null", "double"], "default": None})


@pytest.fixture(scope="module")
def registry(servers):
    with RegistryServer(RegistrySettings(servers, topic="_schemas-spark"), claim("127.0.0.1:0")) as running:
        yield running.url


@pytest.fixture
def client(registry):
    with SchemaRegistryClient({"url": registry}) as client:
        yield client


@pytest.fixture
def subject():
    return f"orders-{next(_numbers)}-value"


@pytest.fixture
def payloads(client, subject):
    """Return payloads that Confluent's serializer writes."""

    def make(schema, *records):
        conf = {"subject.name.strategy": lambda context, record: subject}
        serialize = AvroSerializer(client, schema, conf=conf)
        return [serialize(record, SerializationContext("t", MessageField.VALUE)) for record in records]

    return make


def read(spark, servers, topic):
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "startingOffsets": "earliest"}
    return spark.read.format("barnabas").options(**options).load()


def values_of(servers, topic, count):
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "check", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(count, 60)
    consumer.close()
    return found


def test_an_evolving_topic_is_read_and_what_is_bad_has_its_reason(
    spark, servers, registry, payloads, subject, make_topic, feed
):
    topic = make_topic()
    old = payloads(OLD, {"id": 1, "item": "apple"})
    new = payloads(NEW, {"id": 2, "item": "pear", "price": 0.5})
    for value in [*old, b"no avro", b"\0\0\1\0\0\2", None, *new]:
        feed.send(topic, value=value, key=b"k", partition=0)
    rows = decode_avro(read(spark, servers, topic), registry=registry, subject=subject)
    found = {row.offset: row for row in rows.collect()}
    assert found[0].record.asDict() == {"id": 1, "item": "apple", "price": None}
    assert found[4].record.asDict() == {"id": 2, "item": "pear", "price": 0.5}
    assert "begins with 6e 6f 20 61 76" in found[1].error
    assert "schema id 65536 is not registered" in found[2].error
    assert (found[3].record, found[3].error) == (None, None)
    letters = {row.value: {h.key: h.value for h in row.headers} for row in dead_letters(rows).collect()}
    assert set(letters) == {b"no avro", b"\0\0\1\0\0\2"}
    assert letters[b"no avro"]["__barnabas.errors.offset"] == b"1"
    assert letters[b"no avro"]["__barnabas.errors.topic"] == topic.encode()


def test_a_stream_sends_records_on_and_dead_letters_to_their_topic(
    spark, servers, registry, payloads, subject, make_topic, feed, tmp_path
):
    source, sink, letters = make_topic(), make_topic(), make_topic()
    for value in [*payloads(OLD, {"id": 1, "item": "apple"}, {"id": 2, "item": "pear"}), b"bad"]:
        feed.send(source, value=value, partition=0)
    options = {"kafka.bootstrap.servers": servers, "subscribe": source, "startingOffsets": "earliest"}
    rows = spark.readStream.format("barnabas").options(**options).load()
    decoded = decode_avro(rows, registry=registry, schema=NEW)

    def send(batch, _):
        batch.persist()
        good = batch.where("error IS NULL").selectExpr("record.id + 10 AS id", "upper(record.item) AS item")
        to = {"kafka.bootstrap.servers": servers}
        for frame, topic in (
            (encode_avro(good, OLD, registry=registry, subject=f"{subject}-out"), sink),
            (dead_letters(batch), letters),
        ):
            frame.write.format("barnabas").options(**to, topic=topic).mode("append").save()
        batch.unpersist()

    query = (
        decoded.writeStream.foreachBatch(send)
        .option("checkpointLocation", str(tmp_path))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(300)
    assert query.exception() is None
    with SchemaRegistryClient({"url": registry}) as client:
        deserialize = AvroDeserializer(client)
        sent = [
            deserialize(message.value(), SerializationContext(sink, MessageField.VALUE))
            for message in values_of(servers, sink, 2)
        ]
    assert sorted(sent, key=lambda record: record["id"]) == [
        {"id": 11, "item": "APPLE"},
        {"id": 12, "item": "PEAR"},
    ]
    (letter,) = values_of(servers, letters, 1)
    assert letter.value() == b"bad"
    assert b"not a registered payload" in dict(letter.headers())["__barnabas.errors.message"]


def test_a_function_runs_once_for_all_its_columns(spark, registry, payloads):
    rows = spark.createDataFrame([(bytearray(payloads(OLD, {"id": 1, "item": "x"})[0]),)], "value binary")
    decoded = decode_avro(rows, registry=registry, schema=OLD)
    plan = decoded.where("error IS NULL").selectExpr("record.id", "record.item", "error")
    physical = plan._jdf.queryExecution().executedPlan().toString()
    assert physical.count("ArrowEvalPython") == 1
    assert plan.collect() == [(1, "x", None)]


def test_what_cannot_work_is_said_before_it_runs(spark, registry, client, subject):
    rows = spark.createDataFrame([("x", bytearray(b"x"))], "text string, value binary")
    with pytest.raises(ConfigError, match="either schema or subject"):
        decode_avro(rows, registry=registry)
    with pytest.raises(ConfigError, match="there is no column payload"):
        decode_avro(rows, registry=registry, schema=OLD, column="payload")
    with pytest.raises(ConfigError, match="column text is string: payloads are binary"):
        decode_avro(rows, registry=registry, schema=OLD, column="text")
    with pytest.raises(BarnabasError, match=r"subject .* is not registered"):
        decode_avro(rows, registry=registry, subject=subject)
    with pytest.raises(ConfigError, match="registry=here: write its URL"):
        decode_avro(rows, registry="here", schema=OLD)
    with pytest.raises(ConfigError, match="fields id, item have no default"):
        encode_avro(rows, OLD, registry=registry, subject=subject)
    with pytest.raises(ConfigError, match="not an Avro schema"):
        encode_avro(rows, '{"type": "record"}', registry=registry, subject=subject)
    client.register_schema(subject, Schema(OLD, "AVRO"))
    text = '{"type": "record", "name": "Order", "fields": [{"name": "text", "type": "string"}]}'
    with pytest.raises(ConfigError, match=f"{subject} does not take the schema: .*incompatible"):
        encode_avro(rows, text, registry=registry, subject=subject)


def test_a_row_that_does_not_fit_fails_with_its_cause(spark, registry, subject):
    rows = spark.createDataFrame([(1, None)], "id long, item string")
    with pytest.raises(Exception, match="the schema does not allow"):
        encode_avro(rows, OLD, registry=registry, subject=subject).collect()
