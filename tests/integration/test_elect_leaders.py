"""ElectLeaders to a single broker, as raw requests and by the clients that support it."""

import pytest
from confluent_kafka import ElectionType, TopicPartition
from confluent_kafka.admin import AdminClient

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions


@pytest.fixture
def elect(wire):
    """Return the error code of each partition."""

    def ask(partitions, kind=0, version=2, code=ErrorCode.NONE):
        asked = None
        if partitions is not None:
            asked = [TopicPartitions(topic=name, partitions=numbers) for name, numbers in partitions.items()]
        response = wire(ElectLeadersRequest(topic_partitions=asked, election_type=kind), version)
        assert response.error_code == (code if version else 0)
        return {
            (topic.topic, each.partition_id): ErrorCode(each.error_code)
            for topic in response.replica_election_results
            for each in topic.partition_result
        }

    return ask


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_lone_broker_leads_already(elect, topic, version):
    assert elect({topic.name: [0, 7], "no-such-topic": [0]}, version=version) == {
        (topic.name, 0): ErrorCode.ELECTION_NOT_NEEDED,
        (topic.name, 7): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("no-such-topic", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert elect(None, version=version) == {}


def test_an_unclean_election_needs_a_partition_without_a_leader(elect, topic):
    assert elect({topic.name: [0]}, kind=1) == {(topic.name, 0): ErrorCode.ELECTION_NOT_NEEDED}


def test_an_unknown_kind_of_election_is_refused(elect, topic):
    assert elect({topic.name: [0]}, kind=2, code=ErrorCode.INVALID_REQUEST) == {
        (topic.name, 0): ErrorCode.INVALID_REQUEST
    }


def test_confluent_kafka_elects_leaders(barnabas_broker, topic):
    admin = AdminClient({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    place = TopicPartition(topic.name, 0)
    (result,) = admin.elect_leaders(ElectionType.PREFERRED, [place]).result(60).items()
    assert result[1].code() == ErrorCode.ELECTION_NOT_NEEDED
