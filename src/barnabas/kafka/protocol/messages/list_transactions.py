"""ListTransactions (key 66): list the transactional ids that a broker coordinates (KIP-664).

v1 can filter by how long a transaction has been open (KIP-994), v2 also by a pattern of the id (KIP-1152).
"""

from barnabas.kafka.protocol.schema import Int16, Int32, Int64, Request, Response, String, Struct, since


class ListTransactionsRequest(Request, key=66, versions=(0, 2), flexible=0):
    # An empty filter selects everything.
    state_filters: list[String] = []
    producer_id_filters: list[Int64] = []
    # Milliseconds that a transaction has run for at least; -1: any.
    duration_filter: Int64 = since(1, default=-1)
    # A regular expression of RE2 for the whole transactional id.
    transactional_id_pattern: String | None = since(2, default=None)


class TransactionState(Struct):
    transactional_id: String = ""
    producer_id: Int64 = 0
    transaction_state: String = ""


class ListTransactionsResponse(Response, to=ListTransactionsRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    unknown_state_filters: list[String] = []
    transaction_states: list[TransactionState] = []
