"""Dead letters: their origin by their headers, and the original records."""

from __future__ import annotations

from collections.abc import Iterable

#: the prefixes of headers that pipelines, Kafka Streams (KIP-1034) and Kafka Connect (KIP-298) add
_PREFIXES = ("__barnabas.errors.", "__streams.errors.", "__connect.errors.")
_ORIGINS = {f"{prefix}topic" for prefix in _PREFIXES}

Headers = Iterable[tuple[str, bytes | None]]


def origin(headers: Headers) -> str | None:
    """The topic that a dead letter was read from; None for any other record."""
    found = [value for name, value in headers if name in _ORIGINS and value]
    return found[-1].decode(errors="replace") if found else None


def without_errors(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers that the record had before."""
    return [(name, value) for name, value in headers if not name.startswith(_PREFIXES)]
