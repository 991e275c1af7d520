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
from barnabas.spark.option_values import invalid_option

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from barnabas.pipelines.sink_letters import DeadLetters


class TableSink(SinkKind, ABC):
    """The base class of sinks that write one batch at a time. Barnabas creates an instance without arguments.

    Attributes:
        package: name of the package that the sink imports; empty for none.
        extra: name of the extra of Barnabas that installs the package.
    """

    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    def check_spark(self, options: SinkOptions, settings: Mapping[str, str]) -> None:
        if self.package and find_spec(self.package) is None:
            hint = f"{self.package} is missing: {pip_install(self.extra)}"
            raise invalid_option(options.kind, options.kind, hint)

    @abstractmethod
    def write_batch(
        self, options: SinkOptions, rows: DataFrame, query: str, number: int, letters: DeadLetters | None
    ) -> None:
        """Write batch `number` of `query` to the table, unless it is written already.

        The numbers of a query rise. After a failure, Spark repeats the last number.

        Read `rows` even if the batch is written already. If they are not read, the operators before the sink
        lose their state.

        Args:
            options: options of the sink. For ``@sink(sqlite="shop.db")``, `options.kind` is "sqlite" and
                `options.target` is "shop.db".
            query: id of the query, which stays the same as long as its checkpoint exists.
            letters: makes and sends dead letters for the rows that the table rejects; None if the sink has no
                option dead_letter.

        Raises:
            BarnabasError: the table rejects the batch; the text has the reason in one line.
        """
