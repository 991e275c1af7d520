"""The page of clients' metrics (KIP-714): subscriptions, and series that clients have pushed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from barnabas.base.errors import KafkaError
from barnabas.client.brokers import check
from barnabas.client.errors import ClientError, error_text
from barnabas.console.client_metrics import read_series
from barnabas.console.pages.query import Query
from barnabas.console.view import ClusterView
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest

_CLIENT_METRICS = 16
#: rows of each table
_MAX_ROWS = 500
_WHO = ("client_id", "client_instance_id", "client_software_name")


def clients(view: ClusterView, metrics: Sequence[str], query: Query) -> dict[str, Any]:
    """Return the data of the clients page.

    Query: ``id`` selects a client instance; ``search`` searches the names of its metrics.

    Args:
        view: cluster of the clients.
        metrics: URLs of the brokers' pages of metrics.
        query: query of the page's URL.
    """
    chosen, search = query.get("id", ""), query.get("search", "").lower()[:300]
    series, problems = view.shared("client metrics", 10.0, lambda: read_series(metrics))
    pushing: dict[str, dict[str, Any]] = {}
    numbers = []
    for labels, value, is_sum in series:
        client = labels.get("client_instance_id", "")
        row = pushing.setdefault(client, {**{name: labels.get(name) for name in _WHO}, "series": 0})
        row["series"] += 1
        if client == chosen and search in labels.get("metric", "").lower():
            rest = {name: text for name, text in labels.items() if name not in (*_WHO, "metric")}
            numbers.append(
                {"metric": labels.get("metric"), "attributes": rest, "value": value, "sum": is_sum}
            )
    by_name = sorted(pushing.values(), key=lambda row: (row["client_id"] or "", row["client_instance_id"]))
    return {
        **_subscriptions(view),
        "pages": list(metrics),
        "problems": problems,
        "count": len(by_name),
        "clients": by_name[:_MAX_ROWS],
        "id": chosen or None,
        "numbers": sorted(numbers, key=lambda row: (row["metric"], str(row["attributes"])))[:_MAX_ROWS],
    }


def _subscriptions(view: ClusterView) -> dict[str, Any]:
    """Return the client-metrics resources with their settings (``subscriptions``).

    If the cluster returns an error, the list is empty, and ``subscriptions_problem`` is the error's text.
    """
    try:
        listed = view.brokers.ask_once(ListConfigResourcesRequest(resource_types=[_CLIENT_METRICS]))
        check(listed.error_code, "client-metrics resources")
        names = sorted(each.resource_name for each in listed.config_resources)[:_MAX_ROWS]
        wanted = [DescribeConfigsResource(resource_type=_CLIENT_METRICS, resource_name=n) for n in names]
        results = view.brokers.ask_once(DescribeConfigsRequest(resources=wanted)).results if wanted else []
    except (ClientError, KafkaError) as error:
        return {"subscriptions": [], "subscriptions_problem": error_text(error)}
    rows = [
        {"name": each.resource_name, **{config.name: config.value for config in each.configs}}
        for each in results
        if not each.error_code
    ]
    return {"subscriptions": rows, "subscriptions_problem": None}
