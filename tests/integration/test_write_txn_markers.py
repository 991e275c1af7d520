"""WriteTxnMarkers: a marker is a record in each partition that this broker leads."""

from __future__ import annotations

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)


def test_a_marker_is_appended_where_there_is_a_partition(wire, topic, barnabas_broker):
    producer = wire(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000))
    topics = [
        WritableTxnMarkerTopic(name=topic.name, partition_indexes=[0, 7]),
        WritableTxnMarkerTopic(name="no-such-topic", partition_indexes=[0]),
    ]
    marker = WritableTxnMarker(
        producer_id=producer.producer_id, producer_epoch=producer.producer_epoch, topics=topics
    )
    [result] = wire(WriteTxnMarkersRequest(markers=[marker])).markers
    assert result.producer_id == producer.producer_id
    codes = [[each.error_code for each in topic.partitions] for topic in result.topics]
    missing = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == [[ErrorCode.NONE, missing], [missing]]
    assert barnabas_broker.admin().offsets([(topic.name, 0)], "latest") == {(topic.name, 0): 1}
