"""Computes the lag of a streaming query from Spark's own progress report."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from barnabas.client.lag import lag_of
from barnabas.spark.position import offsets_of
from barnabas.spark.ranges import Offsets


def lag(progress: Mapping[str, Any]) -> Offsets:
    """Return the lag of each partition at the end of a micro-batch, in offsets.

    `progress` is ``query.lastProgress``, an element of ``query.recentProgress``, or the argument of a
    listener. Sources that do not read topics are ignored. If two sources read the same partition, the result
    has the larger lag.
    """
    behind: Offsets = {}
    for source in progress["sources"]:
        end, latest = _offsets(source["endOffset"]), _offsets(source["latestOffset"])
        for tp, each in lag_of(latest, {**dict.fromkeys(latest, 0), **end}).items():
            behind[tp] = max(behind.get(tp, 0), each)
    return behind


def _offsets(text: str) -> Offsets:
    try:
        return offsets_of(json.loads(text))
    except (ValueError, AttributeError, TypeError):  # another source's, or None
        return {}
