"""What docs/reference/metrics.md says: every metric, made from the declarations."""

from __future__ import annotations

from barnabas.base.metrics.declaration import Page
from barnabas.broker.metrics.catalogue import METRICS

_HEAD = """\
# Metrics

A broker serves them to Prometheus with `barnabas start --metrics HOST:PORT`. `/metrics` has what concerns
the broker and its topics, `/metrics/partitions` what grows with partitions and with the offsets of groups:
read it less often, or leave it out, where there are tens of thousands. Metrics that begin with `kafka_` have
the names and labels by which dashboards know Apache Kafka. [Operations](../use/operations.md) says what to
watch.

Counters start at 0 with the broker. A metric that has nothing to say (a group's lag where there is no group)
has no series.
"""


def metrics_reference() -> str:
    """The document, in Markdown."""
    return _HEAD + "".join(
        f"\n## `{page.value}`\n\n| Name | Kind | Labels | Meaning |\n|---|---|---|---|\n"
        + "".join(
            f"| `{m.name}` | {m.kind.value} | {', '.join(f'`{label}`' for label in m.labels)} | {m.help} |\n"
            for m in METRICS.values()
            if m.page is page
        )
        for page in Page
    )
