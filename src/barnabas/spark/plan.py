"""How the tasks of a micro-batch are planned, as its checkpoint keeps it.

What a task has written exactly once is known by the task's number, so a micro-batch that is run again must
have the same tasks: whoever plans it, on however many cores, with whatever options by then, and whatever the
logs have lost since. So the plan is made of nothing but two positions, the second of which has this.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from barnabas.base.errors import BarnabasError
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange, Offsets, Task, from_json, plan_tasks, to_json

#: of `plan_tasks`: another way of planning is another version
_VERSION = 1


class PlanError(BarnabasError):
    """The tasks of a micro-batch cannot be planned as they were."""


@dataclass(frozen=True)
class Plan:
    """The parameters of `plan_tasks`, and the starts of partitions that the first position does not tell."""

    parallelism: int
    min_partitions: int | None = None
    max_records: int | None = None
    starts: Offsets = field(default_factory=dict)

    @classmethod
    def of(cls, options: ReadOptions, starts: Offsets) -> Self:
        """The plan for a new micro-batch."""
        parallelism = parallelism_of(options)
        return cls(parallelism, options.min_partitions, options.max_records_per_partition, starts)

    def tasks(self, ranges: list[OffsetRange]) -> list[Task]:
        """The tasks that read `ranges`."""
        return plan_tasks(ranges, self.parallelism, self.min_partitions, self.max_records)

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`.

        Raises:
            PlanError: it was made by a later version.
        """
        if known.get("version") != _VERSION:
            raise PlanError(
                f"this micro-batch was planned by version {known.get('version')} of the data source's plans, "
                f"and this is version {_VERSION}: run it with the Barnabas that has planned it"
            )
        starts = from_json(known.get("starts", {}))
        return cls(known["parallelism"], known.get("minPartitions"), known.get("maxRecords"), starts)

    def to_json(self) -> dict[str, Any]:
        """The form for the checkpoint."""
        known = {
            "version": _VERSION,
            "parallelism": self.parallelism,
            "minPartitions": self.min_partitions,
            "maxRecords": self.max_records,
            "starts": to_json(self.starts),
        }
        return {name: value for name, value in known.items() if value not in (None, {})}


def parallelism_of(options: ReadOptions) -> int:
    """As the option says; without it the driver's cores, since Spark tells data sources of no others."""
    return options.parallelism or os.cpu_count() or 1


def unknown_plan(options: ReadOptions, ranges: list[OffsetRange]) -> list[Task]:
    """The tasks of a micro-batch whose position says nothing of its plan, as those of before did.

    Raises:
        PlanError: they depend on the cores of the driver that planned it.
    """
    narrow, wide = (
        plan_tasks(ranges, parallelism, options.min_partitions, options.max_records_per_partition)
        for parallelism in (1, max(1, len(ranges)))
    )
    if narrow != wide:
        raise PlanError(
            "the checkpoint does not say how its tasks were planned: it was written by an older Barnabas, "
            "whose plans depended on the driver's cores. Run this micro-batch once more with that version, "
            "on a driver of as many cores as before"
        )
    return narrow
