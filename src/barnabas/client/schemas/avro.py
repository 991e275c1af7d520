"""Registered Avro schemas: decodes payloads, and encodes JSON values."""

from __future__ import annotations

import io
import json
from typing import Any

from barnabas.client.schemas.avro_json import AvroJson
from barnabas.client.schemas.registered import Registered


class AvroSchema:
    """Reads and writes values of one Avro schema, without the magic byte and the schema id of a payload.

    The constructor raises ValueError, TypeError or KeyError if the schema is not valid.
    """

    def __init__(self, schema: Registered) -> None:
        import fastavro

        names: dict[str, Any] = {}
        try:
            for text in (*(text for _, text in schema.references), schema.text):
                # The registry has checked the defaults; fastavro rejects 0 for a double with properties.
                self._parsed = fastavro.parse_schema(json.loads(text), names, _ignore_default_error=True)
        except fastavro.schema.SchemaParseException as error:
            raise ValueError(str(error)) from None
        self._json = AvroJson(self._parsed, names)

    def read(self, data: bytes) -> Any:
        """Decode a value in Avro's binary format, without magic byte and schema id.

        Raises an exception of any type if the bytes do not fit the schema.
        """
        import fastavro

        return fastavro.schemaless_reader(io.BytesIO(data), self._parsed, None)

    def write(self, value: Any, path: str) -> bytes:
        """Return a JSON value in Avro's binary format, without magic byte and schema id.

        `path` names the value in the text of an error. Raises UnfitError if the schema does not allow the
        value.
        """
        return self._json.write(value, path)
