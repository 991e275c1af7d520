"""Writes rows to an Iceberg table: each batch once, and no row through the driver.

Spark's tasks write a batch as Parquet files in the folder of the table's data. Then the driver adds the files
to the table with PyIceberg, in one commit. This commit also sets the table's property
``barnabas.batch.QUERY`` to the number of the batch. By this number the sink recognizes a repeated batch. The
summary of the snapshot also has query and number, but only for people, because snapshots expire.

The catalog accepts a commit only if no other commit came after the metadata that the sink has read. After a
commit of another program, the sink reads the property again and repeats its own commit. If two drivers write
the same batch, the second one finds in the property that the batch is written.

The files of a killed attempt belong to no snapshot. The sink does not delete them, because the attempt may
still commit them. Iceberg calls them orphan files, and has a procedure that deletes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JError
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NoSuchTableError,
    TableAlreadyExistsError,
)
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.table import Table, TableProperties
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.base.errors import BarnabasError
from barnabas.pipelines.errors import explain
from barnabas.pipelines.iceberg_partitions import FOLDER, add_fields, by_partition, check_files
from barnabas.pipelines.sink_options import SinkOptions

#: Attempts to commit, against commits of other programs, before the batch fails.
_COMMITS = 20


class IcebergError(BarnabasError):
    """The sink cannot reach the catalog, or the table rejects the rows."""


def write_batch(options: SinkOptions, rows: DataFrame, query: str, number: int, letters: None = None) -> None:
    """Append batch `number` of `query` to the Iceberg table, unless it is written already.

    `query` is the query's id, and its batches have rising numbers. If the table does not exist, create it. In
    mode complete, the batch replaces all rows of the table. `letters` is always None, because this sink has
    no dead letters.

    Raises:
        IcebergError: the table rejects the batch; the text is PyIceberg's, in one line.
        ConfigError: the table has a partitioning that is not supported.
    """
    try:
        table = _table(options, rows)
        if _is_written(table, query, number):
            # read all the same: operators before the sink keep their state only then
            rows.write.format("noop").mode("overwrite").save()
            return
        folder = f"{table.location()}/data/barnabas-{query}/{number}-{uuid.uuid4().hex[:16]}"
        files = _write(rows, folder, table)
        if not _commit(options, table, files, query, number):
            _remove(rows, folder)
    except BarnabasError:
        raise
    except Exception as error:  # PyIceberg raises what its catalogs and file systems raise
        spark = isinstance(error, (Py4JError, PySparkException))
        said = " ".join((explain(error) if spark else f"{type(error).__name__}: {error}").split())
        raise IcebergError(f"Iceberg table {options.iceberg}: {said}") from None


def _table(options: SinkOptions, rows: DataFrame) -> Table:
    """Open the table. If it does not exist, create it with the columns of `rows`."""
    catalog, _, identifier = options.iceberg.partition(".")
    opened = load_catalog(catalog, **options.options)
    try:
        table = opened.load_table(identifier)
    except NoSuchTableError:
        table = _make(opened, identifier, options, rows)
    return table


def _make(catalog: Catalog, identifier: str, options: SinkOptions, rows: DataFrame) -> Table:
    catalog.create_namespace_if_not_exists(identifier.rpartition(".")[0])
    try:
        with catalog.create_table_transaction(identifier, _schema(rows)) as made, made.update_spec() as spec:
            add_fields(spec, options.partitions)
    except TableAlreadyExistsError:
        pass  # another driver was first
    return catalog.load_table(identifier)


def _schema(rows: DataFrame) -> pa.Schema:
    fields = to_arrow_schema(rows.schema, timezone="UTC")
    # a column that has no NULL today may have one in a later batch
    return pa.schema([field.with_nullable(True) for field in fields])


def _is_written(table: Table, query: str, number: int) -> bool:
    return int(table.properties.get(_property(query), -1)) >= number


def _property(query: str) -> str:
    return f"barnabas.batch.{query}"


def _write(rows: DataFrame, folder: str, table: Table) -> list[str]:
    """Let Spark's tasks write the rows as Parquet files to the new `folder`. Return the files with rows."""
    if table.spec().is_unpartitioned():
        rows.write.mode("errorifexists").parquet(_for_spark(folder))
    else:
        by_partition(rows, table).write.mode("errorifexists").partitionBy(FOLDER).parquet(_for_spark(folder))
    path, files = _file_system(rows, folder)
    made = [f"{folder}/{name}" for name in _parquet_files(files, path)]
    if not table.spec().is_unpartitioned():
        check_files(table, made)
    return made


def _parquet_files(files: Any, path: Any, within: str = "") -> Iterator[str]:
    for each in files.listStatus(path):
        name = each.getPath().getName()
        if name.startswith((".", "_")) and not name.startswith(f"{FOLDER}="):
            continue
        if each.isDirectory():
            yield from _parquet_files(files, each.getPath(), f"{within}{name}/")
        elif name.endswith(".parquet"):
            yield f"{within}{name}"


def _commit(options: SinkOptions, table: Table, files: list[str], query: str, number: int) -> bool:
    """Add the files of batch `number` of `query` to the table, in one commit.

    Return True after the commit; False if another attempt has written the batch.

    Raises:
        CommitStateUnknownException: the catalog did not say whether the commit succeeded.
        IcebergError: other programs committed to the table at each of `_COMMITS` attempts.
    """
    known = {"barnabas.query": query, "barnabas.batch": str(number)}
    for attempt in range(_COMMITS):
        if attempt:
            table.refresh()
            if _is_written(table, query, number):
                return False
        _forbid_retries(table)
        try:
            with table.transaction() as commit:
                if options.mode == "complete" and table.current_snapshot() is not None:
                    commit.delete(AlwaysTrue(), snapshot_properties=known)
                if files:
                    # the files are new: to look for them in all manifests would take ever longer
                    commit.add_files(files, snapshot_properties=known, check_duplicate_files=False)
                commit.set_properties({_property(query): str(number)})
            return True
        except CommitStateUnknownException:
            raise
        except CommitFailedException as error:
            failed = error
    raise IcebergError(f"Iceberg table {options.iceberg}: other writers committed each time: {failed}")


def _forbid_retries(table: Table) -> None:
    """Turn off PyIceberg's retries, so that a commit fails after a commit of another program.

    PyIceberg would repeat the commit even if another attempt has written the batch meanwhile. The call
    changes the properties of `table` in this process only.
    """
    properties = {**table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
    table.metadata = table.metadata.model_copy(update={"properties": properties})


def _remove(rows: DataFrame, folder: str) -> None:
    """Remove the folder of this attempt, whose files were not committed. A failure is ignored."""
    with suppress(Py4JError):
        path, files = _file_system(rows, folder)
        files.delete(path, True)


def _file_system(rows: DataFrame, folder: str) -> tuple[Any, Any]:
    spark = rows.sparkSession
    path = spark._jvm.org.apache.hadoop.fs.Path(_for_spark(folder))
    return path, path.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())


def _for_spark(location: str) -> str:
    """Return the location for Spark: Hadoop writes s3a:// where Iceberg writes s3://."""
    return location.replace("s3://", "s3a://", 1) if location.startswith("s3://") else location
