"""The metadata hash (KIP-1101), compared with values from the code of Apache Kafka 4.2."""

from tests.views import view_of

from barnabas.broker.coordinator.groups.modern.topics import Topics, topic_hash
from barnabas.broker.metadata.image import BrokerImage, ClusterImage, PartitionState, TopicImage

TOPIC = TopicImage("topic-1", bytes([0] * 7 + [1] + [0] * 7 + [2]), (PartitionState((1,), (1,), 1),) * 3)


def image(*topics, rack=None):
    return ClusterImage(brokers={1: BrokerImage(1, (), rack)}, topics={topic.name: topic for topic in topics})


def test_hash_of_a_topic_is_apache_kafkas():
    assert topic_hash(TOPIC, {1: BrokerImage(1, ())}) == 4940678281050907703
    assert topic_hash(TOPIC, {1: BrokerImage(1, (), "r1")}) == -2294723231112120936


def test_hash_of_a_group_is_apache_kafkas():
    assert Topics(view_of(image(TOPIC))).metadata_hash({"topic-1", "nowhere"}) == 1066533497892454969
    assert Topics(view_of(image())).metadata_hash({"topic-1"}) == 0


def test_hash_follows_the_topic():
    view = view_of(image(TOPIC))
    topics = Topics(view)
    before = topics.metadata_hash({"topic-1"})
    view.image = image(TOPIC._replace(partitions=TOPIC.partitions[:2]))
    assert topics.metadata_hash({"topic-1"}) != before
    view.image = image(TOPIC)
    assert topics.metadata_hash({"topic-1"}) == before
    view.image = image(TOPIC, rack="r1")
    assert topics.metadata_hash({"topic-1"}) != before
