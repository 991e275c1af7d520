"""WriteTxnMarkers (key 27): write a transaction's end to its partitions (KIP-98).

The transaction coordinator sends it, and an administrator who aborts a hanging transaction (KIP-664). v2 adds
the transaction version (KIP-1228), which decides how the broker checks the marker's epoch.
"""

from barnabas.kafka.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    since,
)


class WritableTxnMarkerTopic(Struct):
    name: String = ""
    partition_indexes: list[Int32] = []


class WritableTxnMarker(Struct):
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    # True to commit, false to abort.
    transaction_result: Bool = False
    topics: list[WritableTxnMarkerTopic] = []
    # The leader epoch of the coordinator's partition of __transaction_state.
    coordinator_epoch: Int32 = 0
    transaction_version: Int8 = since(2, default=0)


class WriteTxnMarkersRequest(Request, key=27, versions=(1, 2), flexible=1):
    markers: list[WritableTxnMarker] = []


class WritableTxnMarkerPartitionResult(Struct):
    partition_index: Int32 = 0
    error_code: Int16 = 0


class WritableTxnMarkerTopicResult(Struct):
    name: String = ""
    partitions: list[WritableTxnMarkerPartitionResult] = []


class WritableTxnMarkerResult(Struct):
    producer_id: Int64 = 0
    topics: list[WritableTxnMarkerTopicResult] = []


class WriteTxnMarkersResponse(Response, to=WriteTxnMarkersRequest):
    markers: list[WritableTxnMarkerResult] = []
