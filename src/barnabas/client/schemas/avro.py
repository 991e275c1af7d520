"""Registered Avro: from payloads to values, and from JSON to payloads."""

from __future__ import annotations

import io
import json
from typing import Any

from barnabas.client.schemas.avro_json import AvroJson
from barnabas.client.schemas.registered import Registered


class AvroSchema:
    """An Avro schema. Raises ValueError, TypeError or KeyError if it is none."""

    def __init__(self, schema: Registered) -> None:
        import fastavro

        names: dict[str, Any] = {}
        try:
            for _, text in schema.references:
                fastavro.parse_schema(json.loads(text), names)
            self._parsed = fastavro.parse_schema(json.loads(schema.text), names)
        except fastavro.schema.SchemaParseException as error:
            raise ValueError(str(error)) from None
        self._json = AvroJson(self._parsed, names)

    def read(self, data: bytes) -> Any:
        """Return the value. Raises any error if the bytes are not this schema's."""
        import fastavro

        return fastavro.schemaless_reader(io.BytesIO(data), self._parsed, None)

    def write(self, value: Any, path: str) -> bytes:
        """Return the payload of a JSON value. Raises UnfitError."""
        return self._json.write(value, path)
