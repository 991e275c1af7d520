"""Finds bursts of errors: time windows of a topic with far more errors than its other windows.

A window is a burst if it has at least `_AT_LEAST` errors, and more than the topic's mean plus `_DEVIATIONS`
standard deviations. Windows without records do not count for the mean, because log files can be years apart.
Adjacent windows with many errors are one burst.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import fmean, pstdev

import pyarrow.compute as pc
from pyarrow.dataset import Dataset

from demo.report import Count

ERROR_LEVELS = ("ERROR", "FATAL")

_AT_LEAST = 5
_DEVIATIONS = 2


@dataclass(frozen=True)
class Burst:
    """`errors` errors of `topic` from `start` to `end`. `sample` is the most frequent message among them.

    `usual` is the mean number of errors in the topic's windows.
    """

    topic: str
    start: datetime
    end: datetime
    errors: int
    usual: float
    sample: str = ""


def find_bursts(counts: list[Count], records: Dataset, window: timedelta) -> list[Burst]:
    """Return the bursts in the counts, the largest first. Their samples are from the stored records."""
    topics = sorted({count.topic for count in counts})
    found = (burst for topic in topics for burst in _bursts_of(topic, counts, window))
    sampled = (replace(burst, sample=_sample(records, burst)) for burst in found)
    return sorted(sampled, key=lambda burst: -burst.errors)


def _bursts_of(topic: str, counts: list[Count], window: timedelta) -> list[Burst]:
    errors: Counter[datetime] = Counter()
    for count in counts:
        if count.topic == topic:
            errors[count.start] += count.records if count.level in ERROR_LEVELS else 0
    usual = fmean(errors.values())
    limit = usual + _DEVIATIONS * pstdev(errors.values())
    bursts: list[Burst] = []
    for start in sorted(start for start in errors if errors[start] >= _AT_LEAST and errors[start] > limit):
        if bursts and bursts[-1].end == start:
            last = bursts.pop()
            bursts.append(replace(last, end=start + window, errors=last.errors + errors[start]))
        else:
            bursts.append(Burst(topic, start, start + window, errors[start], usual))
    return bursts


def _sample(records: Dataset, burst: Burst) -> str:
    """Return the most frequent message of a burst. Numbers in messages do not count,
    because they often differ.
    """
    within = (
        (pc.field("topic") == burst.topic)
        & pc.field("level").isin(ERROR_LEVELS)
        & (pc.field("at") >= burst.start)
        & (pc.field("at") < burst.end)
    )
    messages: list[str] = records.to_table(columns=["message"], filter=within)["message"].to_pylist()
    shapes = Counter(re.sub(r"\d+", "#", message) for message in messages)
    ((frequent, _),) = shapes.most_common(1)
    return min(message for message in messages if re.sub(r"\d+", "#", message) == frequent)
