"""TopicEncoder: its bytes are those of the codec."""

import pytest

from barnabas.broker.metadata.image import (
    BrokerEndpoint,
    BrokerImage,
    ClusterImage,
    PartitionState,
    TopicImage,
)
from barnabas.broker.server.responses.topic_encoder import TopicEncoder
from barnabas.broker.server.responses.topics import TopicMaker
from barnabas.kafka.protocol.codec import items_encoder
from barnabas.kafka.protocol.messages.metadata import MetadataResponse, MetadataResponseTopic

ENDPOINT = BrokerEndpoint("PLAINTEXT", "127.0.0.1", 9092)
CLUSTER = ClusterImage(
    brokers={1: BrokerImage(1, (ENDPOINT,)), 2: BrokerImage(2, (ENDPOINT._replace(listener="OTHER"),))}
)
LED = PartitionState((1, 2), (1, 2), 1, leader_epoch=3)
UNREACHABLE = PartitionState((2, 1), (2,), 2)
OFFLINE = PartitionState((3,), (3,), -1, leader_epoch=70_000)
MOVED = LED._replace(leader=2, leader_epoch=4, partition_epoch=9)
#: names whose lengths have one byte, and two bytes from 127 characters on
NAMES = ["a", "topic-1", "topic-2", "a" * 96, "n" * 126, "n" * 127, "n" * 249, "__consumer_offsets"]
PARTITIONS = [
    (),
    (LED,),
    (UNREACHABLE,),
    (OFFLINE,),
    (LED, OFFLINE),
    (OFFLINE, LED),
    (LED,) * 130,
    (MOVED, LED),
]


def topics():
    """Every name with all partitions, twice: the encoder meets new lists of brokers, and known ones."""
    pairs = [(name, partitions) for partitions in PARTITIONS for name in NAMES]
    return [
        TopicImage(name, number.to_bytes(16, "big"), partitions)
        for number, (name, partitions) in enumerate([*pairs, *pairs], 1)
    ]


@pytest.mark.parametrize("operations", [False, True])
@pytest.mark.parametrize("version", range(MetadataResponse.versions[0], MetadataResponse.versions[1] + 1))
def test_encoded_topics_have_the_bytes_of_the_codec(version, operations):
    encoder = TopicEncoder(CLUSTER, "PLAINTEXT", version, operations=operations)
    maker = TopicMaker(CLUSTER, "PLAINTEXT", version, operations=operations)
    encode = items_encoder(MetadataResponse, MetadataResponseTopic, version)
    for topic in topics():
        expected = bytearray()
        encode([maker.make(topic)], expected)
        assert encoder.encode(topic) == expected, topic
