"""An array with items that were encoded before: the message has the same bytes as with the items."""

import pytest

from barnabas.kafka.protocol.codec import encoder, items_encoder
from barnabas.kafka.protocol.encoder import EncodedItems
from barnabas.kafka.protocol.messages.metadata import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def topics(count):
    partitions = [
        MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1])
        for index in range(3)
    ]
    return [MetadataResponseTopic(name=f"t{number}", partitions=partitions) for number in range(count)]


def encoded(version, **fields):
    out = bytearray()
    chunks = encoder(MetadataResponse, version)(MetadataResponse(cluster_id="c", error_code=3, **fields), out)
    return b"".join(map(bytes, chunks))


@pytest.mark.parametrize("version", range(MetadataResponse.versions[0], MetadataResponse.versions[1] + 1))
@pytest.mark.parametrize("count", [0, 1, 200])
def test_message_of_encoded_items_has_the_same_bytes(version, count):
    content = bytearray()
    items_encoder(MetadataResponse, MetadataResponseTopic, version)(topics(count), content)
    assert encoded(version, topics=EncodedItems(count, bytes(content))) == encoded(
        version, topics=topics(count)
    )
