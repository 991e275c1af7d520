"""Draws a topic over time with characters."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta

import plotext

from demo.bursts import ERROR_LEVELS
from demo.report import Count
from demo.windows import describe

_HEIGHT = 12
_LABELS = 4

#: Quiet windows between others are drawn too, unless there are more of them than this.
_MAX_WINDOWS = 400


def plot_over_time(counts: list[Count], window: timedelta, width: int) -> str:
    """Return the drawing of the topic with the most errors, by window; without any errors, of the records.

    Raises:
        ValueError: there are no counts.
    """
    errors = [count for count in counts if count.level in ERROR_LEVELS]
    drawn, what = (errors, "errors") if errors else (counts, "records")
    topic = max({count.topic for count in drawn}, key=lambda topic: _sum(drawn, topic))
    heights: Counter[datetime] = Counter()
    for count in drawn:
        if count.topic == topic:
            heights[count.start] += count.records
    starts = _windows(sorted({count.start for count in counts if count.topic == topic}), window)
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, _HEIGHT)
    figure.title(f"{what} in {topic}, by windows of {describe(window)}")
    figure.draw(figure.bar(list(range(len(starts))), [heights[start] for start in starts], width=1.0))
    top = max(heights.values())
    levels = sorted({0, top // 2, top})
    figure.ruler("y").ticks(levels, [f"{level:,}" for level in levels])
    marks = range(0, len(starts), -(-len(starts) // _LABELS))
    figure.ruler("x").ticks(list(marks), [starts[mark].strftime("%d %b %y %H:%M") for mark in marks])
    # in the terminal's own colours: a theme brings a background that may be the wrong one
    text: str = figure.build().string(colorless=True)
    return text


def _sum(counts: list[Count], topic: str) -> int:
    return sum(count.records for count in counts if count.topic == topic)


def _windows(starts: list[datetime], window: timedelta) -> list[datetime]:
    """Return all windows from the first to the last; if the logs are years apart, only those with records."""
    number = (starts[-1] - starts[0]) // window + 1
    return starts if number > _MAX_WINDOWS else [starts[0] + window * index for index in range(number)]
