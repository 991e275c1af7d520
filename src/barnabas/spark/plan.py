"""Plans the tasks of a micro-batch. The checkpoint contains the plan.

An exactly-once sink identifies the rows of a task by the task's number. So a repeated micro-batch must have
the same tasks, even if the number of cores or the options change, or the logs lose records. The tasks depend
only on the positions at which the micro-batch begins and ends. The end position contains the plan.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from barnabas.base.errors import BarnabasError
from barnabas.base.types import JsonObject
from barnabas.spark.options import ReadOptions
from barnabas.spark.ranges import OffsetRange, Offsets, Task, from_json, plan_tasks, to_json

#: versions of plans in checkpoints; a change of `plan_tasks` or of `starts` needs a new version
_VERSION, _START_UNKNOWN = 1, 2


class PlanError(BarnabasError):
    """The tasks of a repeated micro-batch cannot be planned in the same way as before."""


@dataclass(frozen=True)
class Plan:
    """The parameters of `plan_tasks` for one micro-batch, and start offsets of some partitions.

    A micro-batch begins at a position, which has the offset of each partition. Some partitions, for example
    new ones, do not begin at an offset of this position. `starts` has the start offsets of these partitions.

    PySpark 4.1 may request the plan of a run's first micro-batch before it tells where the micro-batch
    begins. In this case only, `initial` is not None. Then `initial` has the offsets at which a new query
    begins, and `starts` has the earliest offset of each partition.
    """

    parallelism: int
    min_partitions: int | None = None
    max_records: int | None = None
    starts: Offsets = field(default_factory=dict)
    initial: Offsets | None = None

    @classmethod
    def of(cls, options: ReadOptions, starts: Offsets) -> Self:
        """Make the plan of a new micro-batch from the options.

        The micro-batch begins at a position, which has the offset of each partition. Some partitions, for
        example new ones, do not begin at an offset of this position. `starts` has the start offsets of these
        partitions.
        """
        parallelism = parallelism_of(options)
        return cls(parallelism, options.min_partitions, options.max_records_per_partition, starts)

    def tasks(self, ranges: list[OffsetRange]) -> list[Task]:
        """Divide `ranges` into tasks, with the parameters of this plan."""
        return plan_tasks(ranges, self.parallelism, self.min_partitions, self.max_records)

    @classmethod
    def from_json(cls, known: Mapping[str, Any]) -> Self:
        """Parse the output of `to_json`.

        Raises:
            PlanError: the plan is from a later version of Barnabas.
        """
        version = known.get("version")
        if version not in (_VERSION, _START_UNKNOWN):
            raise PlanError(
                f"this micro-batch was planned by version {version} of the data source's plans, and this "
                f"Barnabas knows versions up to {_START_UNKNOWN}: run it with the Barnabas that planned it"
            )
        initial = from_json(known.get("initial", {})) if version == _START_UNKNOWN else None
        starts = from_json(known.get("starts", {}))
        return cls(known["parallelism"], known.get("minPartitions"), known.get("maxRecords"), starts, initial)

    def to_json(self) -> JsonObject:
        """Return the JSON for the checkpoint."""
        known = {
            "version": _VERSION if self.initial is None else _START_UNKNOWN,
            "parallelism": self.parallelism,
            "minPartitions": self.min_partitions,
            "maxRecords": self.max_records,
            "starts": to_json(self.starts),
            "initial": to_json(self.initial or {}),
        }
        return {name: value for name, value in known.items() if value not in (None, {})}


def parallelism_of(options: ReadOptions) -> int:
    """Return the value of the option parallelism, by default the number of the driver's cores.

    Spark does not tell a data source the cores of the cluster.
    """
    return options.parallelism or os.cpu_count() or 1


def unknown_plan(options: ReadOptions, ranges: list[OffsetRange]) -> list[Task]:
    """Return the tasks of a micro-batch whose position has no plan, as in older checkpoints.

    Raises:
        PlanError: the tasks depended on the number of cores of the driver that planned them.
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
