"""DescribeTransactions (key 65): return the state of transactional ids (KIP-664)."""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct


class DescribeTransactionsRequest(Request, key=65, versions=(0, 0), flexible=0):
    transactional_ids: list[String] = []


class TopicData(Struct):
    topic: String = ""
    partitions: list[Int32] = []


class TransactionState(Struct):
    error_code: Int16 = 0
    transactional_id: String = ""
    transaction_state: String = ""
    transaction_timeout_ms: Int32 = 0
    # Milliseconds since the epoch, -1 before the first transaction.
    transaction_start_time_ms: Int64 = 0
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    # While the coordinator writes markers: the partitions without a marker.
    topics: list[TopicData] = []


class DescribeTransactionsResponse(Response, to=DescribeTransactionsRequest):
    throttle_time_ms: Int32 = 0
    transaction_states: list[TransactionState] = []
