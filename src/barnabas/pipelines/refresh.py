"""Reads static sources again from time to time, while streams are joined with them.

Spark runs the plan of a static source again for each batch of a stream. But the plan contains the offsets of
a topic, or the list of a folder's files, from the time when the source was opened. This module replaces these
offsets and lists in the plan, so that the next batch of each query reads the present rows.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from pyspark import InheritableThread
from pyspark.sql import DataFrame, SparkSession

from barnabas.pipelines.errors import explain


class Lookup:
    """Refreshes a static source in a separate thread. After a failed refresh, queries keep the old rows.

    Args:
        name: name of the source, for messages.
        rows: rows of the source when it was opened.
        every_s: time between two refreshes, in seconds.
        clock: returns seconds.
    """

    def __init__(
        self, name: str, rows: DataFrame, every_s: float, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._name = name
        self._rows = rows
        self._every_s = every_s
        self._clock = clock
        self._due = clock() + every_s
        self._thread: InheritableThread | None = None
        self._failed: str | None = None

    def look(self, say: Callable[[str], None]) -> None:
        """Begin a refresh in a separate thread if the last refresh began at least `every_s` seconds ago.

        Return at once. Do nothing while a refresh runs. If the last refresh failed, call `say` once with its
        error.
        """
        if self._thread is not None and self._thread.is_alive():
            return
        if self._failed is not None:
            say(f"source {self._name} cannot be read anew, going on with what was read: {self._failed}")
            self._failed = None
        if self._clock() >= self._due:
            self._due = self._clock() + self._every_s
            self._thread = InheritableThread(target=self._refresh, session=self._rows.sparkSession)
            self._thread.daemon = True
            self._thread.start()

    def _refresh(self) -> None:
        try:
            refresh(self._rows)
        except Exception as error:  # whatever it is, the stream goes on with what was read
            self._failed = explain(error)


def refresh(rows: DataFrame) -> None:
    """Make the next batches of all queries read the present rows of each source of `rows`.

    Raises:
        Py4JError, PySparkException: a source cannot be read. Queries keep its old rows.
    """
    spark = rows.sparkSession
    # Spark finds the data source by the thread's session; PySpark has no public way to say so
    SparkSession._get_j_spark_session_class(spark._jvm).setActiveSession(spark._jsparkSession)
    for leaf in _leaves(rows):
        kind = leaf.getClass().getSimpleName()
        if kind == "LogicalRelation":
            leaf.relation().location().refresh()
        elif kind == "DataSourceV2Relation":
            _plan_anew(spark, leaf)


def _leaves(rows: DataFrame) -> Iterator[Any]:
    found = rows._jdf.queryExecution().analyzed().collectLeaves()
    for number in range(found.size()):
        yield found.apply(number)


def _plan_anew(spark: SparkSession, relation: Any) -> None:
    """Plan the read of a Python data source again, for all later scans of `relation`.

    `relation` is Spark's DataSourceV2Relation of the data source, in a query's plan.

    The new plan replaces the old one in one step. A batch that begins meanwhile uses either the old or the
    new plan.
    """
    table = relation.table()
    field = table.getClass().getDeclaredField("ds")  # there is no public way to it
    field.setAccessible(True)
    source = field.get(table)
    schema = table.schema()
    some = spark._jvm.scala.Option.apply(schema)
    made = source.getOrCreateDataSourceInPython(table.name(), relation.options(), some)
    source.setReadInfo(source.source().createReadInfoInPython(made, schema, False))
