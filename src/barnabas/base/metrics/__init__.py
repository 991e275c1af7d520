"""Distributions, meters, and the declaration of metrics: name, labels and Prometheus text.

A metric on the hot path is a plain attribute: one increment costs 0.03 us, a metrics library takes 0.6 to
1.9 us.
"""

from barnabas.base.metrics.durations import BOUNDS, Durations
from barnabas.base.metrics.meter import Meter
from barnabas.base.metrics.percentages import Percentages
from barnabas.base.metrics.rate import Rate

__all__ = ["BOUNDS", "Durations", "Meter", "Percentages", "Rate"]
