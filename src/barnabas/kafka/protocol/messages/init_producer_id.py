"""InitProducerId (key 22): get a producer id and epoch, for an idempotent or transactional producer (KIP-98).

With v3 a producer can keep its id and raise its epoch (KIP-360). v4 can return PRODUCER_FENCED (KIP-588), v5
TRANSACTION_ABORTABLE (KIP-890). v6 (two-phase commit, KIP-939) is not stable in Apache Kafka 4.2, so Barnabas
does not have it.
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
