"""Reads the headers of dead letters: where the original record is, and which topic it was for."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.base.types import TopicPartition

#: the prefix of headers that brokers add for share groups (KIP-1191)
_QUEUE = "__dlq.errors."
#: the prefixes of headers that pipelines, Kafka Streams (KIP-1034), Kafka Connect (KIP-298) and brokers add
_PREFIXES = ("__barnabas.errors.", "__streams.errors.", "__connect.errors.", _QUEUE)
_ORIGINS = {f"{prefix}topic" for prefix in _PREFIXES}
#: headers of a record that a pipeline's sink has rejected: the sink, and the topic that it writes to
_SINK, _DESTINATION = (f"{_PREFIXES[0]}{name}" for name in ("sink", "destination"))

Headers = Iterable[tuple[str, bytes | None]]


def origin(headers: Headers) -> str | None:
    """Return the topic to which a dead letter can be sent again. `headers` are the dead letter's headers.

    - If a pipeline's sink could not write the record to a topic: the topic of the sink.
    - If a pipeline's sink could not write the row to a table: None.
    - For other dead letters: the topic of the original record.
    - If the headers are not those of a dead letter: None.
    """
    given = list(headers)
    if sink_of(given) is not None:
        return _last(given, {_DESTINATION})
    return _last(given, _ORIGINS)


def source_of(headers: Headers) -> tuple[TopicPartition, int] | None:
    """Return the partition and the offset of the original record, from the headers of a dead letter.

    Return None if the record is not the dead letter of a share group. The dead letter itself has the contents
    of the original record only if the group sets ``errors.deadletterqueue.copy.record.enable``.
    """
    given = list(headers)
    found = [_last(given, {_QUEUE + name}) for name in ("topic", "partition", "offset")]
    topic, partition, offset = (text or "" for text in found)
    if not topic or not partition.isdecimal() or not offset.isdecimal():
        return None
    return TopicPartition(topic, int(partition)), int(offset)


def sink_of(headers: Headers) -> str | None:
    """Return the name of the pipeline's sink that has rejected a record; None if no sink has."""
    return _last(headers, {_SINK})


def without_errors(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Return the headers of the original record, without those that describe the error."""
    return [(name, value) for name, value in headers if not name.startswith(_PREFIXES)]


def _last(headers: Headers, names: set[str]) -> str | None:
    found = [value for name, value in headers if name in names and value]
    return found[-1].decode(errors="replace") if found else None
