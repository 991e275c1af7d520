"""Generates docs/reference/metrics.md from the declarations of the metrics."""

from __future__ import annotations

from barnabas.base.metrics.declaration import Page
from barnabas.broker.metrics.catalogue import METRICS

_HEAD = """\
# Metrics

A broker serves its metrics to Prometheus with `barnabas start --metrics HOST:PORT`. `/metrics` has the
metrics of the broker and its topics. `/metrics/partitions` has those of partitions and of the offsets of
groups. With tens of thousands of partitions, read `/metrics/partitions` less often, or not at all. Metrics
with the prefix `kafka_` have the names and labels of Apache Kafka's dashboards.
[Operations](../use/operations.md) explains the alerts.

Counters start at 0 with the broker. A metric without a value (a group's lag without a group) has no series.
"""


def metrics_reference() -> str:
    """Return the page in Markdown."""
    return _HEAD + "".join(
        f"\n## `{page.value}`\n\n| Name | Kind | Labels | Meaning |\n|---|---|---|---|\n"
        + "".join(
            f"| `{m.name}` | {m.kind.value} | {', '.join(f'`{label}`' for label in m.labels)} | {m.help} |\n"
            for m in METRICS.values()
            if m.page is page
        )
        for page in Page
    )
