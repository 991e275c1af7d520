"""Declarations of metrics, and their samples in the text format of Prometheus (0.0.4)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from barnabas.base.metrics.durations import Durations

#: the values of a metric's labels in their order, empty for those left out, and the sample's value
Sample: TypeAlias = tuple[tuple[str, ...], "float | Durations"]

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Kind(Enum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    #: of seconds, in the buckets of `Durations`
    HISTOGRAM = "histogram"
    #: of milliseconds, by `QUANTILES`, as Kafka's meters of time have them
    SUMMARY = "summary"


class Page(Enum):
    """The HTTP path of the page that contains a metric."""

    BROKER = "/metrics"
    PARTITIONS = "/metrics/partitions"


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric: its name, the labels of its series, and its meaning."""

    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str
    page: Page = Page.BROKER


def written(metric: Metric, samples: Iterable[Sample]) -> Iterator[str]:
    """Yield the Prometheus text of a metric and its samples; nothing if there are no samples.

    A label whose value is empty is left out.
    """
    name, labels = metric.name, metric.labels
    is_first = True
    for values, value in samples:
        if is_first:
            is_first = False
            yield f"# HELP {name} {metric.help}\n# TYPE {name} {metric.kind.value}\n"
        pairs = [
            f'{label}="{text.translate(_ESCAPES)}"'
            for label, text in zip(labels, values, strict=True)
            if text
        ]
        if isinstance(value, Durations):
            yield from _distribution(metric, pairs, value)
        else:
            yield f"{name}{{{','.join(pairs)}}} {value}\n" if pairs else f"{name} {value}\n"


def _distribution(metric: Metric, pairs: list[str], durations: Durations) -> Iterator[str]:
    name, common = metric.name, ",".join(pairs)
    comma = "," if common else ""
    if metric.kind is Kind.HISTOGRAM:
        for bound, count in durations.buckets():
            yield f'{name}_bucket{{{common}{comma}le="{bound}"}} {count}\n'
        scale = 1
    else:
        for q in QUANTILES:
            yield f'{name}{{{common}{comma}quantile="{q}"}} {1000 * durations.quantile(q):.6g}\n'
        scale = 1000
    suffix = f"{{{common}}}" if common else ""
    yield f"{name}_sum{suffix} {scale * durations.seconds:.9g}\n{name}_count{suffix} {durations.count}\n"
