"""Converts numbers of JSON and CSV to decimals and times without a silent change of the value.

Spark rounds ``1.999`` into DECIMAL(10,2), and treats each number for a TIMESTAMP as seconds. So decimals are
parsed with as many decimal places as possible, and checked before they get the declared type.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, DecimalType, TimestampType

_MAX_DIGITS = 38

#: Units of epoch times, by the short names of option `time_unit`.
TIME_UNITS = ("ms", "us", "ns")

#: The unit of a field by its semantic type, of Debezium and of Kafka Connect. Source: Debezium's
#: documentation of its connectors, "Temporal types".
UNIT_OF_TYPE = {
    "io.debezium.time.Timestamp": "ms",
    "io.debezium.time.MicroTimestamp": "us",
    "io.debezium.time.NanoTimestamp": "ns",
    "org.apache.kafka.connect.data.Timestamp": "ms",
    "io.debezium.time.Date": "d",
    "org.apache.kafka.connect.data.Date": "d",
}


def parsed_type(declared: DataType) -> DataType:
    """Return the type with which Spark must parse a field that is to have the type `declared`.

    For a DECIMAL, this is a DECIMAL with 38 digits and as many decimal places as possible. For example, it is
    DECIMAL(38,30) for DECIMAL(10,2). So Spark does not round 1.999 silently, and `exact_decimal` can detect
    that the value does not fit. Any other type is returned unchanged.
    """
    if isinstance(declared, DecimalType):
        return DecimalType(_MAX_DIGITS, _MAX_DIGITS - (declared.precision - declared.scale))
    return declared


def exact_decimal(parsed: Column, name: str, declared: DecimalType) -> tuple[Column, Column]:
    """Convert the field `name`, which Spark parsed with the type `parsed_type(declared)`, to `declared`.

    Return the converted column, and a column of reasons: texts that name the field. A value that `declared`
    cannot hold exactly has a reason. Its converted value is rounded, or NULL if it is too large: do not use
    it. For all other values the reason is NULL.
    """
    made = parsed.try_cast(declared)
    words = F.lit(f"field {name} does not fit {declared.simpleString()}: ")
    reason = F.when(~made.eqNullSafe(parsed), F.concat(words, _plain(parsed)))
    return made, reason


def _plain(number: Column) -> Column:
    """Return a decimal as text, without trailing zeros after the decimal point."""
    return F.regexp_replace(number.cast("string"), r"\.?0+$", "")


def epoch_time(text: Column, name: str, declared: DataType, unit: Column) -> tuple[Column, Column]:
    """Convert a field to a time. The field is a number since 1970, or an ISO 8601 text.

    Return the converted column, and a column of reasons. A value that cannot be converted becomes NULL and
    has a reason. For all other values the reason is NULL.

    Args:
        text: the field as text.
        name: the field's name, for the reasons.
        declared: TIMESTAMP or DATE.
        unit: for TIMESTAMP, the unit of numbers: one of `TIME_UNITS`, `d` for days, or NULL if it is not
            known. A number for a DATE always counts days.
    """
    number = F.when(text.rlike(r"^-?\d+$"), text.try_cast("bigint"))
    of_days = F.date_add(F.lit("1970-01-01").cast("date"), number.try_cast("int"))
    written = text.try_cast(declared)
    if isinstance(declared, DateType):
        made = F.when(number.isNotNull(), of_days).otherwise(written)
        unknown = F.lit(False)
    else:
        assert isinstance(declared, TimestampType)
        by_unit = (
            F.when(unit == "ms", F.timestamp_millis(number))
            .when(unit == "us", F.timestamp_micros(number))
            .when(unit == "ns", F.timestamp_micros(F.floor(number / 1000).cast("bigint")))
            .when(unit == "d", of_days.cast("timestamp"))
        )
        made = F.when(number.isNotNull(), by_unit).otherwise(written)
        unknown = number.isNotNull() & unit.isNull()
    no_unit = F.lit(
        f"field {name} is a number, and no schema in the event names its unit: set time_unit to ms, us or ns"
    )
    no_time = F.lit(f"field {name} is not {declared.simpleString()}")
    return made, F.when(unknown, no_unit).when(text.isNotNull() & made.isNull(), no_time)
