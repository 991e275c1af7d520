"""Converts payloads of registered schemas to columns, and back.

A payload has a zero byte, the schema's id (4 bytes, big-endian), and the content in the schema's format.

Source: Confluent's wire format, https://docs.confluent.io/platform/current/schema-registry/fundamentals/
serdes-develop/index.html#wire-format
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

import pyarrow as pa
from pyarrow.compute import CastOptions

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.client.schemas.codec import PREFIX, prefix, schema_id
from barnabas.client.schemas.registered import Registered, SchemaError
from barnabas.client.schemas.registry import RegistryDenied, RegistryRefused

W = TypeVar("W")

#: characters of a row in a message
_SHOWN_ROW = 300

#: Finds the writer's schema by its id. Raises RegistryError or SchemaError.
FindWriter = Callable[[int], Registered]


class RowUnfitError(BarnabasError):
    """The schema does not allow a row."""


class Undecodable(Exception):
    """A payload cannot be decoded; the text is the reason."""


class PayloadDecoder(ABC, Generic[W]):
    """Decodes payloads of any version of a schema to columns of the reader's schema.

    `W` is the type in which a format keeps a writer's schema.
    """

    def __init__(self, made: pa.DataType, column: pa.DataType | None) -> None:
        """Create a decoder.

        `made` is the type of the records that `_record` returns. `column` is the type of the result's column,
        by default the same.
        """
        self.made = made
        self._type = column or made
        self._writers: dict[int, W] = {}

    @abstractmethod
    def _writer(self, id_: int) -> W:
        """Return the writer's schema with the id `id_`, in the form that `_record` takes.

        Raises:
            RegistryError, SchemaError: the registry has no such schema, or does not answer.
            ConfigError: the schema is not of the decoder's type. The decoder of JSON does not check this.
        """

    @abstractmethod
    def _record(self, payload: bytes, start: int, writer: W) -> Any:
        """Decode the record in `payload`, whose content begins at the byte `start`.

        `writer` is a result of `_writer`. Raises Undecodable if the content does not fit the schema.
        """

    def decode(self, payloads: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Decode payloads. Return the records, and the reasons for payloads that cannot be decoded.

        For each payload, the record or the reason is NULL; for a NULL payload, both are.

        Raises:
            RegistryError: the registry does not answer, or does not allow the user to read a schema.
        """
        unknown: dict[int, str] = {}
        records: list[Any] = []
        reasons: list[str | None] = []
        for payload in payloads.to_pylist():
            record = reason = None
            if payload is not None:
                try:
                    record = self._decode(payload, unknown)
                except Undecodable as error:
                    reason = str(error)
            records.append(record)
            reasons.append(reason)
        try:
            column = self._column(records)
        except _UNFIT:
            for number, record in enumerate(records):
                try:
                    self._column([record])
                except _UNFIT as error:
                    records[number] = None
                    reasons[number] = f"its columns have no room for it: {error}"
            column = self._column(records)
        return column, pa.array(reasons, pa.string())

    def _column(self, records: list[Any]) -> pa.Array:
        return pa.array(records, self.made).cast(self._type)

    def _decode(self, payload: bytes, unknown: dict[int, str]) -> Any:
        id_ = schema_id(payload)
        if id_ is None:
            raise Undecodable(
                f"not a registered payload: it begins with {payload[:PREFIX].hex(' ') or 'nothing'}, "
                "not with 00 and a schema's id"
            )
        if id_ in unknown:
            raise Undecodable(unknown[id_])
        if id_ not in self._writers:
            try:
                self._writers[id_] = self._writer(id_)
            except RegistryDenied:
                raise
            except (RegistryRefused, SchemaError, ConfigError) as error:
                # Remembered for this batch only: it may be registered by the next.
                unknown[id_] = str(error)
                raise Undecodable(str(error)) from None
        return self._record(payload, PREFIX, self._writers[id_])


class PayloadEncoder(ABC):
    """Encodes records as payloads of one registered schema."""

    def __init__(
        self, typed: pa.StructType, raw: pa.StructType, id_: int, required: Sequence[str] = ()
    ) -> None:
        """Create an encoder.

        `typed` has the columns of the schema, and `raw` the same columns in the types that `_content`
        expects. `id_` is the id of the schema. `required` names the columns that the rows must have.
        """
        self.names = [field.name for field in typed]
        self.required = tuple(required)
        self._typed = typed
        self._raw = raw
        self._header = prefix(id_)

    @abstractmethod
    def _content(self, row: dict[str, Any]) -> bytes:
        """Return the payload of `row` without the zero byte and the id.

        Raises RowUnfitError if the schema does not allow the row.
        """

    def encode(self, records: pa.Array) -> pa.Array:
        """Return the payload of each record; NULL for a NULL record.

        Raises:
            RowUnfitError: the schema does not allow a record; the text has the row and the column.
        """
        payloads, reasons = self.encode_each(records)
        for reason in reasons.drop_null():
            raise RowUnfitError(reason.as_py())
        return payloads

    def encode_each(self, records: pa.Array) -> tuple[pa.Array, pa.Array]:
        """Encode records. Return the payloads, and the reasons for records that the schema does not allow.

        For each record, the payload or the reason is NULL; for a NULL record, both are.
        """
        payloads: list[bytes | None] = []
        rows, reasons = self._rows(records)
        for number, row in enumerate(rows):
            payload = None
            if row is not None:
                try:
                    payload = self._header + self._content(row)
                except RowUnfitError as error:
                    reasons[number] = str(error)
            payloads.append(payload)
        return pa.array(payloads, pa.binary()), pa.array(reasons, pa.string())

    def _rows(self, records: pa.Array) -> tuple[list[dict[str, Any] | None], list[str | None]]:
        """Return the rows in the types of `raw`, and the reasons for rows that cannot be converted.

        A row that cannot be converted is None. The reason of each other row is None.
        """
        with suppress(pa.ArrowException):
            return self._converted(records), [None] * len(records)
        rows: list[dict[str, Any] | None] = []
        reasons: list[str | None] = []
        for number in range(len(records)):
            try:
                rows += self._converted(records.slice(number, 1))
                reasons.append(None)
            except pa.ArrowException as error:
                rows.append(None)
                reasons.append(self._misfit(records.slice(number, 1), error))
        return rows, reasons

    def _converted(self, records: pa.Array) -> list[dict[str, Any] | None]:
        """Return the records as dicts in the types of `raw`; None for a NULL record.

        Raises ArrowException if a value does not fit.
        """
        present = {field.name for field in records.type}
        typed = pa.struct([field for field in self._typed if field.name in present])
        raw = pa.struct([field for field in self._raw if field.name in present])
        # Microseconds that milliseconds have no room for are cut off, as by Spark's to_avro; nothing else is.
        column = records.cast(options=CastOptions(typed, allow_time_truncate=True)).cast(raw)
        # Asked for dicts, Arrow takes ten times as long also where there are no maps.
        maps = {"maps_as_pydicts": "strict"} if "map<" in str(raw) else {}
        rows: list[dict[str, Any] | None] = column.to_pylist(**maps)
        return rows

    def _misfit(self, record: pa.Array, error: Exception) -> str:
        """Return the reason why one record cannot be converted, with its column and row."""
        named = ""
        for field in record.type:
            try:
                self._converted(pa.StructArray.from_arrays([record.field(field.name)], fields=[field]))
            except pa.ArrowException as found:
                named, error = f"column {field.name}: ", found
                break
        row = str(record.to_pylist()[0])[:_SHOWN_ROW]
        return f"the schema does not allow a value of a row: {named}{error}; the row is {row}"


#: Arrow's errors for values that do not fit a type
_UNFIT = (pa.ArrowException, OverflowError)
