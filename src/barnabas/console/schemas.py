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

from barnabas.base.errors import BarnabasError
from barnabas.base.text import shown, without_userinfo
from barnabas.client.servers import Servers
from barnabas.console.protobuf import DEEPEST, MOST_FILES, ProtobufSchema

_TIMEOUT_S = 3.0
#: a change is compiled, compared and replicated first
_CHANGE_TIMEOUT_S = 15.0
_TYPE = "application/vnd.schemaregistry.v1+json"
_LONGEST_REASON = 2000
_LARGEST_ANSWER = 4 << 20
#: how long one that could not be had is not asked for again, in seconds
_PAUSE_S = 10.0
_MAGIC, _PREFIX = 0, 5


class RegistryError(BarnabasError):
    """The schema registry does not answer, or refuses."""


class RegistryRefused(RegistryError):
    """The schema registry has answered, and refuses.

    Attributes:
        is_missing: what was asked for is not there.
    """

    def __init__(self, message: str, *, is_missing: bool) -> None:
        super().__init__(message)
        self.is_missing = is_missing


class Schemas:
    """A registry's schemas, from any thread.

    Args:
        url: as clients are given it.
        login: a cluster whose user and authorities are the registry's, too.
    """

    def __init__(self, url: str, login: Servers | None = None) -> None:
        self._url = url.rstrip("/")
        self._tls: ssl.SSLContext | None = None
        self._headers: dict[str, str] = {"Accept": _TYPE}
        #: how curl logs in, without the password, for which it asks
        self._login: list[str] = []
        if login is not None:
            if url.startswith("https:"):
                self._tls = ssl.create_default_context(cafile=login.settings.get("ssl.ca.location"))
            user, password = (login.settings.get(f"sasl.{name}", "") for name in ("username", "password"))
            self._login = ["--user", user]
            if self._tls is not None and (authorities := login.settings.get("ssl.ca.location")):
                self._login += ["--cacert", authorities]
            encoded = base64.b64encode(f"{user}:{password}".encode()).decode()
            self._headers["Authorization"] = f"Basic {encoded}"
        self._lock = threading.Lock()
        self._known: dict[int, tuple[str, Any]] = {}
        self._missing: dict[int, float] = {}

    def get(self, path: str) -> Any:
        """A JSON answer. Raises RegistryError."""
        return self._ask("GET", path, None, _TIMEOUT_S)

    def send(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask for a change, or for a check of one; the answer's JSON. Raises RegistryError."""
        return self._ask(method, path, body, _CHANGE_TIMEOUT_S)

    def curl(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> list[str]:
        """The command that sends the same. It has no password."""
        data = [] if body is None else ["--header", f"Content-Type: {_TYPE}", "--data", _json(body)]
        address = without_userinfo(self._url) + path
        return ["curl", "--silent", "--show-error", "--request", method, *data, *self._login, address]

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None, timeout: float) -> Any:
        data = None if body is None else _json(body).encode()
        headers = self._headers if data is None else {**self._headers, "Content-Type": _TYPE}
        try:
            request = urllib.request.Request(self._url + path, data, headers, method=method)
            with urllib.request.urlopen(request, timeout=timeout, context=self._tls) as answer:
                return json.loads(answer.read(_LARGEST_ANSWER))
        except urllib.error.HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except (OSError, ValueError, urllib.error.URLError) as error:
            raise RegistryError(
                f"the schema registry at {without_userinfo(self._url)} does not answer: {error}"
            ) from None

    def _refusal(self, error: urllib.error.HTTPError) -> RegistryError:
        try:
            reason = json.loads(error.read(_LARGEST_ANSWER))["message"]
        except (OSError, ValueError, TypeError, KeyError):
            reason = error.reason
        words = f"the schema registry at {without_userinfo(self._url)}"
        reason = shown(reason, _LONGEST_REASON)
        if error.code >= 500:
            return RegistryError(f"{words} fails (HTTP {error.code}): {reason}")
        return RegistryRefused(f"{words} refuses (HTTP {error.code}): {reason}", is_missing=error.code == 404)

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


def subject_path(subject: str) -> str:
    """A subject's name as a part of an address."""
    return urllib.parse.quote(subject, safe="")


def level_of(registry: Schemas, subject: str, query: str = "") -> str | None:
    """A subject's compatibility level; None where it has none of its own. Raises RegistryError."""
    try:
        level = registry.get(f"/config/{subject_path(subject)}{query}").get("compatibilityLevel")
    except RegistryRefused as error:
        if error.is_missing:
            return None
        raise
    return level if isinstance(level, str) else None


def _json(body: Mapping[str, Any]) -> str:
    return json.dumps(body, ensure_ascii=False)


def _version(reference: Mapping[str, Any]) -> str:
    """The address of what a reference names."""
    return f"/subjects/{subject_path(reference['subject'])}/versions/{int(reference['version'])}"


def _serialized(reference: Mapping[str, Any]) -> str:
    return f"{_version(reference)}?format=serialized"
