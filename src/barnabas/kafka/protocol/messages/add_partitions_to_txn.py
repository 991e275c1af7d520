"""AddPartitionsToTxn (key 24): add partitions to a transaction (KIP-98).

Up to v3, a producer sends the request for its one transaction. Since v4, brokers send it for several
transactions. With `verify_only`, the request adds nothing and asks whether the partitions are in the
transaction (KIP-890). v2 can return PRODUCER_FENCED (KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890).
"""

from barnabas.kafka.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    since,
    until,
)


class AddPartitionsToTxnTopic(Struct):
    name: String = ""
    partitions: list[Int32] = []


class AddPartitionsToTxnTransaction(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    # Only ask whether the partitions are in the transaction; add nothing.
    verify_only: Bool = False
    topics: list[AddPartitionsToTxnTopic] = []


class AddPartitionsToTxnRequest(Request, key=24, versions=(0, 5), flexible=3):
    transactions: list[AddPartitionsToTxnTransaction] = since(4, default=[])
    v3_and_below_transactional_id: String = until(3, default="")
    v3_and_below_producer_id: Int64 = until(3, default=0)
    v3_and_below_producer_epoch: Int16 = until(3, default=0)
    v3_and_below_topics: list[AddPartitionsToTxnTopic] = until(3, default=[])


class AddPartitionsToTxnPartitionResult(Struct):
    partition_index: Int32 = 0
    partition_error_code: Int16 = 0


class AddPartitionsToTxnTopicResult(Struct):
    name: String = ""
    results_by_partition: list[AddPartitionsToTxnPartitionResult] = []


class AddPartitionsToTxnResult(Struct):
    transactional_id: String = ""
    topic_results: list[AddPartitionsToTxnTopicResult] = []


class AddPartitionsToTxnResponse(Response, to=AddPartitionsToTxnRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = since(4, default=0)
    results_by_transaction: list[AddPartitionsToTxnResult] = since(4, default=[])
    results_by_topic_v3_and_below: list[AddPartitionsToTxnTopicResult] = until(3, default=[])
