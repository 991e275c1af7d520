"""A schema registry for the console, which decodes values that begin with a schema's id."""

from __future__ import annotations

import threading
import time
from typing import Any

from barnabas.client.schemas.codec import PREFIX, Codec, codec_of, schema_id
from barnabas.client.schemas.registered import by_id
from barnabas.client.schemas.registry import RegistryRefused, SchemaRegistry, subject_path
from barnabas.client.servers import Servers

#: The compatibility levels that schema registries know.
LEVELS = (
    "NONE",
    "BACKWARD",
    "BACKWARD_TRANSITIVE",
    "FORWARD",
    "FORWARD_TRANSITIVE",
    "FULL",
    "FULL_TRANSITIVE",
)

#: seconds until the registry is asked again for a schema that it could not return
_PAUSE_S = 10.0


class Schemas(SchemaRegistry):
    """A client of a schema registry, with decoders of its schemas. Any thread can use this object.

    Args:
        url: URL of the registry. It can contain a user and a password, as for `SchemaRegistry`.
        login: a cluster. The registry client trusts the certificate authorities of the cluster's settings,
            and logs in as their user unless the URL has a user. None: no such settings.
    """

    def __init__(self, url: str, login: Servers | None = None) -> None:
        super().__init__(url, login)
        self._lock = threading.Lock()
        self._known: dict[int, tuple[str, Codec]] = {}
        self._missing: dict[int, float] = {}

    def decode(self, data: bytes) -> tuple[str, int, Any] | None:
        """Decode bytes that begin with a schema's id.

        Return the format, the id and the value. Return None if the bytes do not begin with an id, or do not
        fit the schema. Also return None if the registry does not return the schema.
        """
        id_ = schema_id(data)
        known = None if id_ is None else self._codec(id_)
        if id_ is None or known is None:
            return None
        format_, codec = known
        try:
            return format_, id_, codec.read(data[PREFIX:])
        except Exception:  # whatever the bytes are, they are not this schema's
            return None

    def _codec(self, id_: int) -> tuple[str, Codec] | None:
        with self._lock:
            if id_ in self._known:
                return self._known[id_]
            if time.monotonic() - self._missing.get(id_, -_PAUSE_S) < _PAUSE_S:
                return None
        try:
            schema = by_id(self, id_)
            known = schema.kind.lower(), codec_of(schema)
        except Exception:  # no registry, no such schema, or none that can be parsed
            with self._lock:
                if len(self._missing) > 1000:
                    self._missing.clear()
                self._missing[id_] = time.monotonic()
            return None
        with self._lock:
            self._known[id_] = known
        return known


def level_of(registry: SchemaRegistry, subject: str, query: str = "") -> str | None:
    """Return a subject's own compatibility level; None if it has none.

    With the `query` ``?defaultToGlobal=true``, return the registry's level instead of None. Raises
    RegistryError if the registry does not answer, or refuses the request.
    """
    try:
        level = registry.get(f"/config/{subject_path(subject)}{query}").get("compatibilityLevel")
    except RegistryRefused as error:
        if error.is_missing:
            return None
        raise
    return level if isinstance(level, str) else None
