"""The base class of sinks that write tables, for Barnabas and for other packages.

A package adds a kind of sink by an entry point. The name of the entry point becomes an option of `@sink`:

    [project.entry-points."barnabas.sinks"]
    sqlite = "barnabas_sqlite:SqliteSink"

This module must import little, because a file with a sink is read before Spark and the database's driver are
loaded.
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
    """A kind of sink that writes one batch at a time. Barnabas creates it without arguments.

    Attributes:
        package: package that the sink imports, from the extra `extra` of Barnabas; empty for none.
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
        """Write batch `number` of `query`, unless it is written already.

        Numbers rise, and Spark can repeat the last.

        Read `rows` even if the batch is written already. Otherwise the operators before the sink lose their
        state.

        Args:
            options: options of the sink; `options.target` is the value of the kind's own option.
            query: name that lives as long as the checkpoint.
            letters: accepts the rows that the table rejects. None if the pipeline has no dead letters for the
                sink, or `takes` does not contain dead_letter.

        Raises:
            BarnabasError: the table rejects the batch; the text has the reason in one line.
        """
