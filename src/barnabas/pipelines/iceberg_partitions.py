"""Writes files for partitioned Iceberg tables, so that each file has rows of only one partition.

PyIceberg derives a file's partition from the lowest and the highest value of a column in the file's footer.
So Spark writes the rows of each partition to separate files. It divides the rows by the column `FOLDER`,
which is in the names of folders, but not in the files.

If a footer lacks the lowest and the highest value, PyIceberg would treat the file as a partition of NULLs.
Readers would then miss the file's rows. This module rejects such a file.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.partitioning import PartitionField
from pyiceberg.table import Table
from pyiceberg.table.update.spec import UpdateSpec
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    TimeTransform,
    TruncateTransform,
    VoidTransform,
    YearTransform,
    parse_transform,
)
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, DoubleType, FloatType, TimestampType

from barnabas.base.errors import ConfigError

#: The column whose values are the folders of a batch; no file has it.
FOLDER = "_barnabas_partition"

_PARTITION = re.compile(r"(?:(\w+(?:\[\d+\])?)\((.+)\)|(.+))")
_TRANSFORMS = (YearTransform, MonthTransform, DayTransform, HourTransform, IdentityTransform)
#: The bounds of a column have at most 4 KB: of a file with one value, it is both of them.
_LONG_BYTES = 2048
_HOUR_US = 3_600_000_000
_DAY_US = 24 * _HOUR_US


def add_fields(spec: UpdateSpec, partitions: Sequence[str]) -> None:
    """Add partition fields such as ``item``, ``day(at)`` and ``truncate[8](name)`` to a new table."""
    for each in partitions:
        match = _PARTITION.fullmatch(each)
        assert match is not None
        spec.add_field(match[2] or match[3], parse_transform(match[1] or "identity"))


def by_partition(rows: DataFrame, table: Table) -> DataFrame:
    """Return `rows` with the column `FOLDER`: a digest, as text, that differs between partitions.

    Spark distributes the rows so that few tasks have rows of the same partition.

    Raises:
        ConfigError: the table's partitioning is not supported.
    """
    values = [
        _value(rows, table, field).alias(f"f{number}")
        for number, field in enumerate(table.spec().fields)
        if not isinstance(field.transform, VoidTransform)
    ]
    # a digest, since a folder's name is escaped in ways that Hadoop and PyIceberg do not share
    marked = rows.withColumn(FOLDER, F.sha2(F.to_json(F.struct(*values)), 256) if values else F.lit(""))
    return marked.hint("rebalance", FOLDER)


def check_files(table: Table, files: Sequence[str]) -> None:
    """Check that PyIceberg can derive a single partition from the footer of each file.

    Raises:
        ConfigError: a footer lacks the lowest and the highest value of a partition's column.
        ValueError: PyIceberg finds several partitions in a file.
    """
    fields = table.spec().fields
    for path in files:
        found = parquet_file_to_data_file(table.io, table.metadata, path)
        for number, field in enumerate(fields):
            if found.partition[number] is not None or isinstance(field.transform, VoidTransform):
                continue
            nulls = found.null_value_counts.get(field.source_id)
            if nulls is None or nulls != found.record_count:
                raise _refused(table, field, _why_unbounded(table, field, path))


def _why_unbounded(table: Table, field: PartitionField, path: str) -> str:
    """Return the reason why the footer of the file `path` has no bounds for the column of `field`.

    Parquet keeps no bounds of very long values. So this function reads the column and finds its longest
    value.
    """
    name = str(table.schema().find_column_name(field.source_id))
    with table.io.new_input(path).open() as file:
        values = pq.read_table(file, columns=[name]).column(0)
    longest = 0
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type):
        longest = pc.max(pc.binary_length(values)).as_py() or 0
    if longest < _LONG_BYTES:
        return f"Parquet has no bounds of column {name}: are its metrics off?"
    return (
        f"a value of column {name} has {longest:,} bytes, and Parquet keeps no bounds of values above 4 KB, "
        f"by which the table finds its partition: shorten the values of {name} before the sink, or write to "
        "a table that is partitioned by another column"
    )


def _value(rows: DataFrame, table: Table, field: PartitionField) -> Column:
    """Return an expression whose value differs between the partitions of `field`.

    Rows of one partition can have different values, and then go to several files. Raises ConfigError if the
    column's type or the field's transform is not supported.
    """
    name = table.schema().find_column_name(field.source_id)
    if name is None or name not in rows.columns:
        if name is not None and "." not in name:
            return F.lit(None)  # a column that the rows do not have is NULL in all of them
        raise _refused(table, field, "columns within columns are not supported")
    column, kind = F.col(f"`{name}`"), rows.schema[name].dataType
    transform = field.transform
    if isinstance(kind, (FloatType, DoubleType)):
        raise _refused(table, field, "floating-point numbers are not supported")
    if isinstance(transform, TimeTransform) and isinstance(transform, _TRANSFORMS):
        return _time(column, kind, transform)
    if isinstance(transform, TruncateTransform):
        return _truncated(column, kind, transform.width)
    if isinstance(transform, IdentityTransform):  # times as JSON have no more than milliseconds
        return F.unix_micros(column) if isinstance(kind, TimestampType) else column.cast("string")
    raise _refused(table, field, "only identity, year, month, day, hour and truncate are supported")


def _time(column: Column, kind: DataType, transform: TimeTransform) -> Column:
    if isinstance(kind, TimestampType):  # by UTC, whatever the session's zone is
        micros = F.unix_micros(column)
        if isinstance(transform, HourTransform):
            return micros - F.pmod(micros, F.lit(_HOUR_US))
        days = (micros - F.pmod(micros, F.lit(_DAY_US))) / F.lit(_DAY_US)
        day = F.date_add(F.lit("1970-01-01").cast("date"), days.cast("int"))
    elif isinstance(kind, DateType):
        day = column
    else:  # without a zone
        day = column.cast("date")
        if isinstance(transform, HourTransform):
            return F.concat_ws(" ", day.cast("string"), F.hour(column).cast("string"))
    if isinstance(transform, YearTransform):
        return F.year(day)
    return F.trunc(day, "month") if isinstance(transform, MonthTransform) else day


def _truncated(column: Column, kind: DataType, width: int) -> Column:
    if kind.typeName() == "string":
        return F.substring(column, 1, width)
    if kind.typeName() in ("byte", "short", "integer", "long"):
        return column - F.pmod(column, F.lit(width))
    return column


def _refused(table: Table, field: PartitionField, why: str) -> ConfigError:
    name = ".".join(table.name())
    return ConfigError(f"Iceberg table {name}: it is partitioned by {field.name} ({field.transform}): {why}")
