"""InitProducerId (key 22): a producer id and epoch, idempotent or transactional (KIP-98).

v3 lets a producer go on with the id it has by raising its epoch (KIP-360), v4 may answer PRODUCER_FENCED
(KIP-588), v5 TRANSACTION_ABORTABLE (KIP-890). v6, two-phase commit (KIP-939), is not yet stable in Apache
Kafka 4.2 and left out.
"""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String, since


class InitProducerIdRequest(Request, key=22, versions=(0, 5), flexible=2):
    # Null for a producer that is only idempotent.
    transactional_id: String | None = ""
    transaction_timeout_ms: Int32 = 0
    # The id and epoch that the producer holds, to raise the epoch; -1 for new ones.
    producer_id: Int64 = since(3, default=-1)
    producer_epoch: Int16 = since(3, default=-1)


class InitProducerIdResponse(Response, to=InitProducerIdRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    producer_id: Int64 = -1
    producer_epoch: Int16 = 0
