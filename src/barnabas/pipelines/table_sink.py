"""The base of sinks to tables, for Barnabas' own and for those of other packages.

A package adds a kind of sink by an entry point, whose name becomes an option of `@sink`:

    [project.entry-points."barnabas.sinks"]
    sqlite = "barnabas_sqlite:SqliteSink"

This module stays light: a file that names a sink is read before Spark and the database's driver are loaded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar

from barnabas.base.installation import pip_install
from barnabas.pipelines.sink_options import SinkKind, SinkOptions
from barnabas.spark.option_values import refuse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.pipelines.sink_letters import DeadLetters


class TableSink(SinkKind, ABC):
    """A kind of sink that writes a batch at a time. Barnabas makes one without arguments.

    Attributes:
        package: a package that the sink imports, of the extra `extra` of Barnabas; empty for none.
    """

    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    def check_spark(self, options: SinkOptions, settings: Mapping[str, str]) -> None:
        if self.package and find_spec(self.package) is None:
            cure = f"{self.package} is missing: {pip_install(self.extra)}"
            raise refuse(options.kind, options.kind, cure)

    @abstractmethod
    def write_batch(
        self, options: SinkOptions, rows: DataFrame, query: str, number: int, letters: DeadLetters | None
    ) -> None:
        """Write batch `number` of `query`, unless it is written. Numbers rise, and Spark can repeat the last.

        Read `rows` for a batch that is written too: operators before the sink keep their state only then.

        Args:
            options: `options.target` is the value that the pipeline gives the kind's own option.
            query: a name that lives as long as the checkpoint.
            letters: takes the rows that the table rejects. None if the pipeline asks for no dead letters, or
                `takes` has no dead_letter.

        Raises:
            BarnabasError: the table does not take the batch; the text says why, in one line.
        """
