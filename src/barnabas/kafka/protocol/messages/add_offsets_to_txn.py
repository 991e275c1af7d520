"""AddOffsetsToTxn (key 25): a transaction is about to commit a group's offsets (KIP-98).

v2 may answer PRODUCER_FENCED (KIP-588), v4 TRANSACTION_ABORTABLE (KIP-890). With transactions v2 no client
asks any more: TxnOffsetCommit v5 does it implicitly.
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
