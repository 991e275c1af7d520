"""Records of `__transaction_state`: the states of transactional ids. A null value deletes a state.

Key and value each begin with their version as an int16, which the classes of this module do not declare. The
broker writes version 1 of the value if the feature `transaction.version` is 1 or higher (KIP-890).
Transactions v2 need the tagged fields of version 1.
"""

from barnabas.kafka.protocol.schema import Int8, Int16, Int32, Int64, Message, String, Struct, tagged


class TransactionLogKey(Message, versions=(0, 0)):
    transactional_id: String = ""


class PartitionsSchema(Struct):
    topic: String = ""
    partition_ids: list[Int32] = []


class TransactionLogValue(Message, versions=(0, 1), flexible=1):
    producer_id: Int64 = 0
    previous_producer_id: Int64 = tagged(0, since=1, default=-1)
    # The id that follows when the epochs of this one are used up.
    next_producer_id: Int64 = tagged(1, since=1, default=-1)
    producer_epoch: Int16 = 0
    next_producer_epoch: Int16 = tagged(3, since=1, default=-1)
    transaction_timeout_ms: Int32 = 0
    transaction_status: Int8 = 0
    # Null when no transaction has begun.
    transaction_partitions: list[PartitionsSchema] | None = []
    transaction_last_update_timestamp_ms: Int64 = 0
    transaction_start_timestamp_ms: Int64 = 0
    # The version of transactions that the client speaks.
    client_transaction_version: Int16 = tagged(2, since=1, default=0)
