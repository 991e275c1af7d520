"""Declarations of metrics, and their samples in the text format of Prometheus (0.0.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from barnabas.base.metrics.durations import Durations
from barnabas.base.metrics.percentages import Percentages

#: the values of a metric's labels in their order, empty for those left out, and the sample's value
Sample: TypeAlias = tuple[tuple[str, ...], "float | Durations | Percentages"]

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Kind(Enum):
    """The type of a metric in Prometheus."""

    COUNTER = "counter"
    GAUGE = "gauge"
    #: of seconds, in the buckets of `Durations`
    HISTOGRAM = "histogram"
    #: of milliseconds or percentages, by `QUANTILES`, as Kafka's histograms have them
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

    A sample is a pair: the values of the metric's labels in their order, and a number or a histogram. A label
    whose value is empty is left out.
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
        if isinstance(value, Percentages):
            yield from _summary(metric, pairs, value.quantile, value.sum, value.count)
        elif isinstance(value, Durations):
            yield from _durations(metric, pairs, value)
        else:
            yield f"{name}{_labels(pairs)} {value}\n"


def _durations(metric: Metric, pairs: list[str], durations: Durations) -> Iterator[str]:
    if metric.kind is Kind.SUMMARY:
        yield from _summary(
            metric, pairs, lambda q: 1000 * durations.quantile(q), 1000 * durations.seconds, durations.count
        )
        return
    for bound, count in durations.buckets():
        labels = _labels([*pairs, f'le="{bound}"'])
        yield f"{metric.name}_bucket{labels} {count}\n"
    yield from _totals(metric, pairs, durations.seconds, durations.count)


def _summary(
    metric: Metric, pairs: list[str], quantile: Callable[[float], float], total: float, count: int
) -> Iterator[str]:
    for q in QUANTILES:
        labels = _labels([*pairs, f'quantile="{q}"'])
        yield f"{metric.name}{labels} {quantile(q):.6g}\n"
    yield from _totals(metric, pairs, total, count)


def _totals(metric: Metric, pairs: list[str], total: float, count: int) -> Iterator[str]:
    labels = _labels(pairs)
    yield f"{metric.name}_sum{labels} {total:.9g}\n{metric.name}_count{labels} {count}\n"


def _labels(pairs: list[str]) -> str:
    return f"{{{','.join(pairs)}}}" if pairs else ""
