"""The fixture `barnabas_secure_broker`, as tests of applications use it."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.base.errors import ErrorCode


def test_a_user_may_do_what_was_granted_and_no_more(barnabas_secure_broker) -> None:
    broker = barnabas_secure_broker
    broker.create_topic("orders", 1)
    failures = []
    unseen = Producer(broker.client("alice")).list_topics("orders", timeout=60).topics["orders"]
    assert unseen.error.code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    broker.grant("alice", "WRITE", topic="ord*")
    producer = Producer(broker.client("alice"))  # librdkafka remembers a refusal
    producer.produce("orders", b"apples", on_delivery=lambda error, _: failures.append(error))
    assert producer.flush(60) == 0
    assert failures == [None]
    assert [record.value for record in broker.consume("orders", 1)] == [b"apples"]
    broker.grant("alice", "READ", group="g")
    reader = Consumer({**broker.client("alice"), "group.id": "g"})
    reader.assign([TopicPartition("orders", 0, 0)])
    try:
        refused = reader.poll(60)
        assert refused is not None and refused.error().code() == ErrorCode.TOPIC_AUTHORIZATION_FAILED
    finally:
        reader.close()


def test_the_authority_signs_and_files_are_for_the_command_line(barnabas_secure_broker, run_command) -> None:
    broker = barnabas_secure_broker
    file = broker.properties("bob")
    broker.grant("bob", "DESCRIBE", topic="*")
    assert run_command("topics", "list", "--config", str(file)).exit_code == 0
    assert broker.certificates.issue("alice").name == "alice"


def test_an_operation_that_is_not_known_is_named(barnabas_secure_broker) -> None:
    with pytest.raises(ValueError, match=r"WRIT is not an operation: choose from .*READ, WRITE"):
        barnabas_secure_broker.grant("alice", "WRIT", topic="orders")


@pytest.fixture
def run_command():
    from click.testing import CliRunner

    from barnabas.cli.app import app

    return lambda *words: CliRunner().invoke(app, list(words))
