"""The page of transactions, and of hanging ones: open in a partition, and unknown to any coordinator."""

from __future__ import annotations

from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.client.errors import ClientError, error_text
from barnabas.client.leaders import live_leaders
from barnabas.client.transactions import Transactions
from barnabas.console.pages.query import Query, whole
from barnabas.console.view import ClusterView

_MAX_ROWS = 500
#: the number of partitions that are searched for hanging transactions
_PARTITIONS = 2000


def transactions(view: ClusterView, query: Query) -> dict[str, Any]:
    """Return the data of the transactions page.

    Query: ``older`` is the number of minutes after which an open transaction can be hanging, by default 15.
    """
    minutes = whole(query, "older", 15, 0, 10**6)
    with Transactions(view.servers) as known:
        listed = known.listings()
        partitions = sorted(live_leaders(view.metadata().topics))
        problem, hanging = None, []
        try:
            hanging = known.hanging(
                partitions[:_PARTITIONS], longer_than_ms=minutes * 60_000, now_ms=view.clock.now_ms()
            )
        except (ClientError, KafkaError) as error:
            problem = error_text(error)
    return {
        "transactions": [
            {
                "id": each.transactional_id,
                "coordinator": each.coordinator,
                "producer": each.producer_id,
                "state": each.state,
            }
            for each in listed[:_MAX_ROWS]
        ],
        "count": len(listed),
        "hanging": [
            {
                "partition": str(each.partition),
                "producer": each.producer_id,
                "epoch": each.producer_epoch,
                "began_at": each.transaction_start,
                "last": each.last_timestamp_ms,
            }
            for each in hanging
        ],
        "looked_at": len(partitions[:_PARTITIONS]),
        "partitions": len(partitions),
        "problem": problem,
    }
