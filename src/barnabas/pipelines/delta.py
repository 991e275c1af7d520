"""Rows into a Delta table, each batch once.

A batch is one commit of the table's log, which holds the number of the query's last batch as an application
transaction (Delta's protocol, "Transaction Identifiers"): one that comes again is known by it. The rows pass
through the driver: bound the batches of a large stream with maxOffsetsPerTrigger.
"""

from __future__ import annotations

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError as DeltaLakeError

from barnabas.base.errors import BarnabasError
from barnabas.base.text import without_userinfo
from barnabas.pipelines.options import SinkOptions


class DeltaError(BarnabasError):
    """The table cannot be written."""


def write_batch(options: SinkOptions, rows: pa.Table, query: str, number: int) -> None:
    """Append batch `number` of `query`, or in mode complete replace all by it, unless that is done.

    Raises:
        DeltaError: the table does not take it.
    """
    path = options.delta
    try:
        if DeltaTable.is_deltatable(path):
            written = DeltaTable(path).transaction_version(query)
            if written is not None and written >= number:
                return
        write_deltalake(
            path,
            rows,
            mode="overwrite" if options.mode == "complete" else "append",
            partition_by=options.partitions or None,
            commit_properties=CommitProperties(app_transactions=[Transaction(query, number)]),
        )
    except (DeltaLakeError, ValueError, OSError) as error:
        said = " ".join(str(error).split()).replace(path, without_userinfo(path))
        raise DeltaError(f"Delta table {without_userinfo(path)}: {said}") from None
