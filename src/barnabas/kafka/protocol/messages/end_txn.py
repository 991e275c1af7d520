"""EndTxn (key 26): commit or abort the ongoing transaction (KIP-98).

v2 can return PRODUCER_FENCED (KIP-588), v4 TRANSACTION_ABORTABLE. With v5 each transaction raises the
producer's epoch, and the response contains the epoch of the next one (KIP-890).
"""

from barnabas.kafka.protocol.schema import Bool, Int16, Int32, Int64, Request, Response, String, since


class EndTxnRequest(Request, key=26, versions=(0, 5), flexible=3):
    transactional_id: String = ""
    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    # True to commit, false to abort.
    committed: Bool = False


class EndTxnResponse(Response, to=EndTxnRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = since(5, default=-1)
    producer_epoch: Int16 = since(5, default=-1)
