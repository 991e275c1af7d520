"""Makes the changes that send a new record, or that send a dead letter again."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from barnabas.client import Producer
from barnabas.client.schemas.alone import encode_alone
from barnabas.client.schemas.registered import find
from barnabas.console.change import Change, ChangeFields, number_of, text_of
from barnabas.console.dead_letters import origin, sink_of, source_of, without_errors
from barnabas.console.pages.query import QueryError
from barnabas.console.pages.records import record_at
from barnabas.console.pages.schemas import NO_REGISTRY
from barnabas.console.pages.topic import described
from barnabas.console.schemas import Schemas
from barnabas.console.view import ClusterView

_PRODUCE_S = 10.0


class _Part(NamedTuple):
    """The key or the value of a record.

    Attributes:
        line: the part as in the JSON line that `barnabas produce` reads.
        options: options of `barnabas produce` for its schema.
        says: description of the encoding.
    """

    data: str | bytes | None
    line: str
    options: tuple[str, ...] = ()
    says: str | None = None


def produce(view: ClusterView, registry: Schemas | None, fields: ChangeFields) -> Change:
    """Return the change that sends a new record.

    `fields` has fields of a page's form, such as ``topic``, ``key``, ``value``, ``headers``, ``partition``.
    Key and value are texts, or JSON that is encoded with a registered schema.

    Raises:
        QueryError: a field is missing or invalid.
        UnfitError, SchemaError, SchemaNameError, RegistryError: a part cannot be encoded with its schema.
    """
    name = text_of(fields, "topic")
    value, key = (_part(registry, fields, part) for part in ("value", "key"))
    partition = number_of(fields, "partition", 0, 2**31 - 1)
    headers = fields.get("headers") or []
    if not isinstance(headers, list) or not all(
        isinstance(h, list) and len(h) == 2 and all(isinstance(part, str) for part in h) for h in headers
    ):
        raise QueryError("headers: write a list of [name, text]")
    pairs = [(header, text.encode()) for header, text in headers]
    options = [*value.options, *key.options]
    if options and registry is not None:
        options += registry.options
    if partition is not None:
        options += ["--partition", str(partition)]
    with_headers = f', "headers": {_json(headers)}' if headers else ""
    says = [part.says for part in (value, key) if part.says is not None]
    return Change(
        ["produce", name, "--json", *options],
        lambda: _send(view, name, value.data, key=key.data, partition=partition, headers=pairs),
        {"possible": True, "says": says} if says else None,
        given=f'{{"value": {value.line}, "key": {key.line}{with_headers}}}',
    )


def redrive(view: ClusterView, fields: ChangeFields) -> Change:
    """Return the change that sends a dead letter again, to the topic that `origin` returns.

    `fields` has the fields ``topic``, ``partition`` and ``offset`` of the dead letter. Key, value and the
    record's own headers do not change. If a share group's dead letter has only headers, the change sends the
    original record again.

    Raises:
        QueryError: a field is missing, there is no such record, or no topic to send it to.
        KafkaError, ClientError: the record cannot be read, or the topic to send it to does not exist.
    """
    name = text_of(fields, "topic")
    partition = number_of(fields, "partition", 0, 2**31 - 1)
    offset = number_of(fields, "offset", 0, 2**63 - 1)
    if partition is None or offset is None:
        raise QueryError("partition and offset: name the record")
    record = record_at(view, name, partition, offset)
    to = origin(record.headers)
    if to is None and (sink := sink_of(record.headers)) is not None:
        raise QueryError(
            f"{name[:40]}-{partition} at {offset} is a row that the sink {sink[:40]} has rejected for a "
            "table: write it again with a pipeline that reads this topic"
        )
    if to is None:
        raise QueryError(
            f"{name[:40]}-{partition} at {offset} is not a dead letter: no header names its original topic"
        )
    described(view, to)  # sending would create it
    headers = without_errors(record.headers)
    source = source_of(record.headers)
    if source is not None and record.key is record.value is None and not headers:
        (name, partition), offset = source
        record = record_at(view, name, partition, offset)
        headers = list(record.headers)
    options = ["--partition", str(partition), "--offset", str(offset)]
    return Change(
        ["consume", name, *options, "--max-messages", "1", "--json"],
        lambda: _send(view, to, record.value, key=record.key, headers=headers),
        None,
        ["produce", to, "--json"],
    )


def _send(view: ClusterView, topic: str, value: str | bytes | None, **more: Any) -> dict[str, Any]:
    sent: list[Any] = []
    with Producer(view.servers, delivery_timeout_ms=int(_PRODUCE_S * 1000)) as producer:
        producer.send(topic, value, on_delivery=sent.append, **more)
    return {"topic": topic, "partition": sent[0].partition, "offset": sent[0].offset} if sent else {}


def _part(registry: Schemas | None, fields: ChangeFields, name: str) -> _Part:
    text, schema, message = (fields.get(field) for field in (name, f"{name}_schema", f"{name}_message"))
    if not isinstance(text, str | None):
        raise QueryError(f"{name}: write text, or null")
    if not isinstance(schema, str | None) or not isinstance(message, str | None):
        raise QueryError(f"{name}_schema and {name}_message: write text, or null")
    if not schema:
        return _Part(text, _json(text))
    if registry is None:
        raise QueryError(NO_REGISTRY)
    found, same = find(registry, schema)
    options = [f"--{name}-schema", same, *([f"--{name}-message", message] if message else [])]
    if text is None:
        return _Part(None, "null", tuple(options))
    data = encode_alone(found, message or "", text, name)
    says = f"The {name} has {len(data)} bytes, by schema {found.id} ({same}, {found.kind})."
    # It is JSON, so a line break stands between its parts.
    return _Part(data, text.replace("\r", " ").replace("\n", " "), tuple(options), says)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
