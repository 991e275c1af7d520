"""Decides whether streaming rows come from one source alone, by operators without state."""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame

#: Spark's operators that see one row, or one task, at a time, and keep nothing from one batch to the next.
_STATELESS = {
    "ArrowEvalPython",
    "BatchEvalPython",
    "EventTimeWatermark",
    "Filter",
    "Generate",
    "MapInArrow",
    "MapInPandas",
    "Project",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    "SubqueryAlias",
    "Union",
    "View",
}


def mark(rows: DataFrame, source: str) -> DataFrame:
    """Return `rows` with an alias, by which `comes_alone` recognizes their source."""
    return rows.alias(_mark(source))


def comes_alone(rows: DataFrame, source: str) -> bool:
    """Whether streaming `rows` come only from `source`, by operators without state.

    The rows of the source must have passed through `mark`. A join with static rows is without state. For
    static rows, the result is True.
    """
    return _comes_alone(rows._jdf.queryExecution().analyzed(), _mark(source))


def _mark(source: str) -> str:
    return f"_source_{source}"


def _comes_alone(plan: Any, name: str) -> bool:
    if not plan.isStreaming():
        return True
    kind = plan.getClass().getSimpleName()
    if kind == "SubqueryAlias" and plan.alias() == name:
        return True
    children = [plan.children().apply(number) for number in range(plan.children().size())]
    one_streams = kind == "Join" and sum(child.isStreaming() for child in children) == 1
    if not children or not (kind in _STATELESS or one_streams):
        return False
    return all(_comes_alone(child, name) for child in children)
