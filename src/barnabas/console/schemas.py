"""What a schema registry says of records: the schema by whose id a value begins, and all its subjects."""

from __future__ import annotations

import base64
import io
import json
import ssl
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from typing import Any

from barnabas.client.servers import Servers
from barnabas.console.protobuf import DEEPEST, MOST_FILES, ProtobufSchema
from barnabas.errors import BarnabasError
from barnabas.text import without_userinfo

_TIMEOUT_S = 3.0
_LARGEST_ANSWER = 4 << 20
#: how long one that could not be had is not asked for again, in seconds
_PAUSE_S = 10.0
_MAGIC, _PREFIX = 0, 5


class RegistryError(BarnabasError):
    """The schema registry does not answer, or refuses."""


class Schemas:
    """A registry's schemas, from any thread.

    Args:
        url: as clients are given it.
        login: a cluster whose user and authorities are the registry's, too.
    """

    def __init__(self, url: str, login: Servers | None = None) -> None:
        self._url = url.rstrip("/")
        self._tls: ssl.SSLContext | None = None
        self._headers: dict[str, str] = {}
        if login is not None:
            if url.startswith("https:"):
                self._tls = ssl.create_default_context(cafile=login.settings.get("ssl.ca.location"))
            user, password = (login.settings.get(f"sasl.{name}", "") for name in ("username", "password"))
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        self._lock = threading.Lock()
        self._known: dict[int, tuple[str, Any]] = {}
        self._missing: dict[int, float] = {}

    def get(self, path: str) -> Any:
        """A JSON answer. Raises RegistryError."""
        try:
            request = urllib.request.Request(self._url + path, headers=self._headers)
            with urllib.request.urlopen(request, timeout=_TIMEOUT_S, context=self._tls) as answer:
                return json.loads(answer.read(_LARGEST_ANSWER))
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise RegistryError(
                f"the schema registry at {without_userinfo(self._url)} does not answer: {error}"
            ) from None

    def decode(self, data: bytes) -> tuple[str, int, Any] | None:
        """What a schema makes of bytes that begin with its id: the format, the id, the value; else None."""
        if len(data) < _PREFIX or data[0] != _MAGIC:
            return None
        id_ = int.from_bytes(data[1:_PREFIX], "big")
        schema = self._schema(id_)
        if schema is None:
            return None
        kind, parsed = schema
        try:
            if kind == "AVRO":
                import fastavro

                return "avro", id_, fastavro.schemaless_reader(io.BytesIO(data[_PREFIX:]), parsed, None)
            if kind == "PROTOBUF":
                return "protobuf", id_, parsed.read(data[_PREFIX:])
            if kind == "JSON":
                return "json", id_, json.loads(data[_PREFIX:])
        except Exception:  # whatever the bytes are, they are not this schema's
            return None
        return None

    def _schema(self, id_: int) -> tuple[str, Any] | None:
        with self._lock:
            if id_ in self._known:
                return self._known[id_]
            if time.monotonic() - self._missing.get(id_, -_PAUSE_S) < _PAUSE_S:
                return None
        try:
            answer = self.get(f"/schemas/ids/{id_}")
            kind = answer.get("schemaType", "AVRO")
            parsed = answer["schema"]
            if kind == "AVRO":
                parsed = self._avro(answer, {}, set(), 0)
            elif kind == "PROTOBUF":
                serialized = self.get(f"/schemas/ids/{id_}?format=serialized")
                parsed = ProtobufSchema(serialized, self.get, _serialized)
        except Exception:  # no registry, no such schema, or none that can be parsed
            with self._lock:
                if len(self._missing) > 1000:
                    self._missing.clear()
                self._missing[id_] = time.monotonic()
            return None
        with self._lock:
            self._known[id_] = kind, parsed
        return kind, parsed

    def _avro(self, answer: Mapping[str, Any], named: dict[str, Any], read: set[str], depth: int) -> Any:
        """Return a parsed schema, once all that it refers to is in `named`.

        Args:
            answer: the registry's, with the schema's text and its references.
            named: parsed types by their full names.
            read: the addresses of references that are parsed.

        Raises:
            ValueError: it refers to too much.
        """
        import fastavro

        if depth > DEEPEST:
            raise ValueError("its references are too deep")
        for reference in answer.get("references") or ():
            path = _version(reference)
            if path not in read:
                read.add(path)
                if len(read) > MOST_FILES:
                    raise ValueError("it has too many references")
                self._avro(self.get(path), named, read, depth + 1)
        return fastavro.parse_schema(json.loads(answer["schema"]), named)


def _version(reference: Mapping[str, Any]) -> str:
    """The address of what a reference names."""
    subject = urllib.parse.quote(reference["subject"], safe="")
    return f"/subjects/{subject}/versions/{int(reference['version'])}"


def _serialized(reference: Mapping[str, Any]) -> str:
    return f"{_version(reference)}?format=serialized"
