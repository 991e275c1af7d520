"""Files that the browser saves: the bytes of a record's key or value, and records as lines of JSON."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from barnabas.base.types import TopicPartition
from barnabas.client.fetching import Found
from barnabas.client.json_bytes import record_line
from barnabas.console.pages.query import Query, QueryError, choice
from barnabas.console.pages.records import record_of, search
from barnabas.console.shown import Masks, exported
from barnabas.console.view import ClusterView
from barnabas.kafka.records import Record

#: the characters of a topic's name that are replaced in the name of a file
_ODD = re.compile(r"[^A-Za-z0-9._-]")
#: records of a download, unless the query names fewer
MAX_RECORDS = 10_000


class Download(NamedTuple):
    """A file that the browser saves."""

    name: str
    type: str
    content: bytes


def download_value(view: ClusterView, topic: str, query: Query) -> Download:
    """Return the bytes of a record's key or value. Query: ``partition``, ``offset``, ``part`` (value, key).

    Raises:
        QueryError: the record does not exist, the wanted part is null, or the console hides this part or
            fields in it.
        KafkaError, ClientError: the record cannot be read.
    """
    part = choice(query, "part", ("value", "key"))
    if view.privacy.hide_values:
        raise QueryError("values are hidden here (--hide-values)")
    if part == "value" and view.privacy.paths(topic):
        raise QueryError(f"fields of {topic[:40]} are hidden here (--mask): the bytes would show them")
    content = getattr(record_of(view, topic, query), part)
    if content is None:
        raise QueryError(f"the {part} is null")
    name = f"{_ODD.sub('_', topic)}-{query.get('partition', '0')}-{query.get('offset', '0')}.{part}"
    return Download(_ODD.sub("_", name), "application/octet-stream", content)


def download_records(view: ClusterView, topic: str, query: Query) -> Download:
    """Return the records that a query selects as lines of JSON, in the form of ``barnabas consume --json``.

    The query has the same parameters as on the records page.

    Raises:
        QueryError, FilterError: a part of the query is invalid, or needs values that the console hides.
        KafkaError: there is no such topic.
    """
    masks = view.privacy.paths(topic)

    def line(partition: int, found: Found) -> str:
        record = found.record
        place = TopicPartition(topic, partition)
        return record_line(place, record.offset, record.timestamp, _content(view, record, masks))

    found = search(view, topic, {**query, "markers": "no"}, line, MAX_RECORDS)
    content = "".join(f"{each}\n" for _, each in found.rows).encode(errors="backslashreplace")
    return Download(f"{_ODD.sub('_', topic)}.jsonl", "application/x-ndjson", content)


def _content(view: ClusterView, record: Record, masks: Masks) -> dict[str, Any]:
    if view.privacy.hide_values:
        return {}
    return {
        "key": exported(record.key),
        "value": exported(record.value, view.decode, masks),
        "headers": [[name, exported(value)] for name, value in record.headers],
    }
