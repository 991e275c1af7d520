"""`barnabas transactions` against a broker."""

import uuid

import pytest
from confluent_kafka import Producer

from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch
from barnabas.testing import BarnabasBroker

SECONDS = 60


@pytest.fixture
def producer(barnabas_broker):
    """Return a transactional producer and its transactional id."""
    name = f"x-{uuid.uuid4().hex}"
    producer = Producer(
        {"bootstrap.servers": barnabas_broker.bootstrap_servers, "transactional.id": name, "log_level": 0}
    )
    producer.init_transactions(SECONDS)
    return producer, name


def test_transaction_is_listed_and_described(barnabas, barnabas_topic, producer):
    producer, name = producer
    producer.begin_transaction()
    producer.produce(barnabas_topic, b"v", partition=0)
    producer.flush(SECONDS)
    (listed,) = barnabas("transactions", "list", "--pattern", name, "--json").json()
    assert (listed["transactional_id"], listed["state"]) == (name, "Ongoing")
    assert name in barnabas("transactions", "list", "--state", "Ongoing").out
    assert name not in barnabas("transactions", "list", "--state", "Empty").out
    assert name not in barnabas("transactions", "list", "--longer-than", "3600").out
    described = barnabas("transactions", "describe", name, "--json").json()
    assert described["partitions"] == [{"topic": barnabas_topic, "partition": 0}]
    assert described["open_for_ms"] >= 0
    assert f"transactional id {name} is Ongoing" in barnabas("transactions", "describe", name).out
    producer.commit_transaction(SECONDS)
    described = barnabas("transactions", "describe", name, "--json").json()
    assert (described["state"], described["partitions"]) == ("CompleteCommit", [])


def test_unknown_transactional_id_is_said_in_one_line(barnabas):
    outcome = barnabas("transactions", "describe", "nobody", code=1)
    assert "TRANSACTIONAL_ID_NOT_FOUND" in outcome.err


def test_unknown_state_is_said_in_one_line(barnabas):
    err = barnabas("transactions", "list", "--state", "nonsense", code=2).err
    assert "'nonsense' is not one of Empty, Ongoing, " in err


def test_unknown_partition_is_not_said_to_be_without_hanging_transactions(barnabas, barnabas_topic):
    command = ["transactions", "find-hanging", "--topic"]
    assert "there is no topic absent" in barnabas(*command, "absent", code=1).err
    err = barnabas(*command, barnabas_topic, "--partition", 9, code=1).err
    assert f"there is no partition 9 of topic {barnabas_topic}" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ["list", "--longer-than", "inf"],
        ["list", "--longer-than", "-1"],
        ["list", "--producer-id", "-1"],
        ["find-hanging", "--max-transaction-timeout", "nan"],
        ["find-hanging", "--partition", "0"],
        ["abort", "--topic", "t", "--partition", "0", "--start-offset", "-1"],
        ["describe", ""],
    ],
)
def test_absurd_values_are_wrong_usage(barnabas, arguments):
    assert len(barnabas("transactions", *arguments, code=2).err.splitlines()) == 1


def test_pattern_that_is_none_is_refused(barnabas):
    assert "INVALID_REGULAR_EXPRESSION" in barnabas("transactions", "list", "--pattern", "(", code=1).err


def test_running_transaction_does_not_hang(barnabas, barnabas_topic, producer):
    producer, _ = producer
    producer.begin_transaction()
    producer.produce(barnabas_topic, b"v", partition=0)
    producer.flush(SECONDS)
    found = barnabas(
        "transactions", "find-hanging", "--topic", barnabas_topic, "--max-transaction-timeout", "0"
    )
    assert found.out == ""
    refused = barnabas(
        *("transactions", "abort", "--topic", barnabas_topic, "--partition", "0", "--start-offset", "0"),
        code=1,
    )
    assert "does not hang" in refused.err
    producer.abort_transaction(SECONDS)


def test_hanging_transaction_is_found_and_aborted(barnabas):
    """A broker without verification accepts records outside of a transaction, so a transaction can hang."""
    with BarnabasBroker({"transaction.partition.verification.enable": "false"}) as broker:
        topic = broker.create_topic("t")
        broker.produce(topic, "before")
        host, _, port = broker.bootstrap_servers.rpartition(":")
        batch = encode_batch(
            [Record(None, b"late", 1_700_000_000_000)],
            producer_id=4711,
            producer_epoch=3,
            base_sequence=0,
            transactional=True,
        )
        with BrokerConnection(host, int(port)) as connection:
            connection._versions[0] = (3, 11)  # from v12 on the partition would be added
            answer = connection.ask(
                ProduceRequest(
                    transactional_id="gone",
                    acks=-1,
                    timeout_ms=60_000,
                    topic_data=[
                        TopicProduceData(
                            name=topic, partition_data=[PartitionProduceData(index=0, records=batch)]
                        )
                    ],
                )
            )
        assert answer.responses[0].partition_responses[0].error_code == 0
        broker.produce(topic, "after")
        at = ("-b", broker.bootstrap_servers)
        (found,) = barnabas("transactions", "find-hanging", "--json", *at, code=1).json()
        assert (found["producer_id"], found["start_offset"]) == (4711, 1)
        assert "4711" in barnabas("transactions", "find-hanging", "--topic", topic, *at, code=1).out
        place = ("--topic", topic, "--partition", "0", "--start-offset")
        assert "begins at 7" in barnabas("transactions", "abort", *place, "7", *at, code=1).err
        assert "aborted" in barnabas("transactions", "abort", *place, "1", *at).out
        assert barnabas("transactions", "find-hanging", "--json", *at).json() == []
        with broker.consumer(topic, isolation_level="read_committed") as consumer:
            assert [record.text for record in consumer.take(2)] == ["before", "after"]
