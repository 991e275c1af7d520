"""Reads and parses a source once for several outputs: one query writes each batch to all of them.

This query replaces the query for the source's dead letters. It also replaces the queries of some sinks: those
whose rows come from this source alone, by steps that keep no state. The options of these sinks must also
allow it (`can_share`). Spark calls a function with each micro-batch. The function runs these steps on the
rows of the batch. It caches the batch until it has written all outputs.

The function writes each output with the output's own name and the number of the batch. If one output fails,
Spark repeats the batch for all outputs. An exactly-once output then recognizes a batch that it has written.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, Observation
from pyspark.sql import functions as F

from barnabas.pipelines.sink_letters import Rejections
from barnabas.pipelines.sink_options import SinkOptions, sink_kind
from barnabas.pipelines.sinks import static_writer
from barnabas.pipelines.status import ROWS_WRITTEN


@dataclass(frozen=True)
class Output:
    """One output of the query that writes all outputs of a shared source.

    For each batch, `of` is called with the DataFrames of the sources and steps, by name. It returns the rows
    to write.
    """

    name: str
    options: SinkOptions
    rejections: Rejections
    of: Callable[[Mapping[str, DataFrame]], DataFrame]


@dataclass
class Fanout:
    """Writes the batches of a query to its outputs.

    Args:
        frames: called with the rows of each batch; returns the DataFrames of the sources and steps, by name.
        client: ``kafka.*`` options of the pipeline.
        registry: URL of the schema registry.
    """

    outputs: Sequence[Output]
    frames: Callable[[DataFrame], Mapping[str, DataFrame]]
    client: dict[str, str]
    registry: str
    #: the rows given to all outputs since the pipeline started; a repeated batch counts once
    written: int = field(default=0, init=False)
    _last: int = field(default=-1, init=False)
    _before_last: int = field(default=0, init=False)
    _rejected_before_last: list[int] = field(default_factory=list, init=False)

    def write(self, batch: DataFrame, number: int) -> None:
        """Write the batch `number` to all outputs, and count its rows. A repeated batch counts once."""
        if number == self._last:
            self.written = self._before_last
            for output, rows in zip(self.outputs, self._rejected_before_last, strict=True):
                output.rejections.rows = rows
        self._last, self._before_last = number, self.written
        self._rejected_before_last = [output.rejections.rows for output in self.outputs]
        query = batch.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        batch.persist()
        try:
            frames = self.frames(batch)
            for output in self.outputs:
                seen = Observation()
                rows = output.of(frames).observe(seen, F.count(F.lit(1)).alias(ROWS_WRITTEN))
                name = f"{query}-{output.name}"
                static_writer(
                    rows, output.options, self.client, self.registry, output.rejections, name, number
                )()
                self.written += seen.get[ROWS_WRITTEN]
        finally:
            batch.unpersist()


def can_share(options: SinkOptions) -> bool:
    """Whether a sink with these options can be one of several outputs that one query writes.

    The kind of the sink must allow this. The sink must not have the mode complete, and no trigger of its own.
    """
    return sink_kind(options.kind).shares and options.mode != "complete" and not options.trigger
