"""AddOffsetsToTxn (key 25): add a group's offsets to a transaction (KIP-98).

v2 can return PRODUCER_FENCED (KIP-588), v4 TRANSACTION_ABORTABLE (KIP-890). With transactions v2,
clients do not send this request: TxnOffsetCommit v5 includes it.
"""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String


class AddOffsetsToTxnRequest(Request, key=25, versions=(0, 4), flexible=3):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    group_id: String = ""


class AddOffsetsToTxnResponse(Response, to=AddOffsetsToTxnRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
