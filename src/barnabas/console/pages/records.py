"""The page of a topic's records that match a filter: from its start, its end, an offset or a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Generic, TypeVar

from barnabas.base.types import TopicPartition
from barnabas.client.fetching import Found, fetch, next_offset, records_in
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.console.dead_letters import origin
from barnabas.console.filters import Candidate, Filter, parse, paths
from barnabas.console.pages.query import Query, QueryError, choice, numbers, whole
from barnabas.console.pages.topic import described
from barnabas.console.shown import FORMATS, HIDDEN, MAX_SHOWN, PREVIEW, Masks, cell, compared, shown, visible
from barnabas.console.view import ClusterView
from barnabas.kafka.records import Record

#: how much one request scans; the next continues where it ended
_MAX_BYTES, _MAX_SECONDS = 16 << 20, 2.0
_AT_ONCE = 256 << 10
_MAX_PARTITIONS, _MAX_ROWS, _MAX_ON_A_PAGE = 200, 20_000, 500
T = TypeVar("T")
#: (partition, found) -> what is kept of a record or a marker
Row = Callable[[int, Found], T]
_BEGINNINGS = ("end", "start", "offset", "time")


def records(view: ClusterView, name: str, query: Query) -> dict[str, Any]:
    """Return the data of the records page: the records that the query selects, sorted by time.

    `name` is the name of the topic. Raises QueryError or FilterError if a part of the query is invalid, or
    needs values that the console hides. Raises KafkaError if there is no such topic.

    A time is 2026-03-01T12:00:00Z, for example, or milliseconds since 1970.

    | query | value |
    |---|---|
    | partitions | 0-3,7 |
    | from | end, start, offset or time |
    | at | with ``from=offset``, the first offset; with ``from=time``, the first time |
    | until | the last time |
    | limit | 1 to 500 |
    | filter | as `barnabas.console.filters` parses it |
    | format | auto, text, json or hex |
    | markers | no or yes |
    | columns | value.total,header.region |
    | next | ``next`` of the last answer, to continue the search |
    """
    masks = view.privacy.paths(name)
    how = choice(query, "format", FORMATS)
    columns = paths(query.get("columns", ""))
    if columns and view.privacy.hide_values:
        raise QueryError("columns: values are hidden here (--hide-values)")

    def row(partition: int, found: Found) -> dict[str, Any]:
        metadata = _metadata(partition, found)
        if found.marker:
            return metadata
        if columns:
            seen = candidate(view, partition, found.record, masks)
            metadata["columns"] = [cell(get(seen)) for get in columns]
        return {**metadata, **content(view, found.record, how, masks)}

    found = search(view, name, query, row, _MAX_ON_A_PAGE)
    return {
        "topic": name,
        "records": [each for _, each in found.rows],
        "scanned": found.scanned,
        "scanned_bytes": found.bytes,
        "complete": not found.left,
        "next": ",".join(f"{p.partition}:{offset}" for p, offset in sorted(found.positions.items())),
        "problem": found.problem,
    }


def search(view: ClusterView, name: str, query: Query, row: Row[T], max_rows: int) -> Search[T]:
    """Search for the records that a query selects. Return the ended search, with rows sorted by time.

    Args:
        view: cluster of the topic.
        name: name of the topic.
        query: query of the records page.
        row: converts a record to a row of the result.
        max_rows: largest number of rows.

    Raises:
        QueryError, FilterError: a part of the query is invalid, or needs values that the console hides.
        KafkaError: there is no such topic.
    """
    topic = described(view, name)
    limit = whole(query, "limit", min(50, max_rows), 1, max_rows)
    passes = parse(query["filter"]) if query.get("filter", "").strip() else None
    if passes is not None and view.privacy.hide_values:
        raise QueryError("filter: values are hidden here (--hide-values), and a filter would tell of them")
    leaders = {
        p: leader
        for p, leader in view.leaders([name]).items()
        if (wanted := numbers(query, "partitions")) is None or p.partition in wanted
    }
    leaders = dict(sorted(leaders.items())[:_MAX_PARTITIONS])
    ends = offsets_at(view.brokers, leaders, LATEST)
    starts = offsets_at(view.brokers, leaders, EARLIEST)
    positions = _positions(view, query, leaders, starts, ends, limit)
    # The last ones of all partitions together are known when each partition's last ones are read.
    takes_last = passes is None and not query.get("next") and choice(query, "from", _BEGINNINGS) == "end"
    found = Search(view, topic, query, passes, max(limit, _MAX_ROWS) if takes_last else limit, row)
    found.run(leaders, positions, ends)
    found.rows.sort(key=lambda each: each[0])
    if takes_last:
        found.rows = found.rows[-limit:]
    return found


def _positions(
    view: ClusterView,
    query: Query,
    leaders: dict[TopicPartition, int],
    starts: dict[TopicPartition, int],
    ends: dict[TopicPartition, int],
    limit: int,
) -> dict[TopicPartition, int]:
    """Return the offset from which to read each partition, for ``next``, ``from`` and ``at`` of the query.

    A partition whose offsets are not known is left out. If the query has ``next``, ``from`` and ``at`` have
    no effect. If ``from`` is "end", the offset is `limit` below the end, but not below the log start offset.

    Args:
        leaders: partitions with a leader, and their leaders.
        starts: known log start offsets.
        ends: known high watermarks.
        limit: number of offsets before the end, for "end".
    """
    begin = choice(query, "from", _BEGINNINGS)
    if query.get("next"):
        found = _parsed_next(query["next"])
        return {p: found.get(p.partition, ends.get(p, 0)) for p in leaders if p in ends}
    if begin == "start":
        return {p: starts[p] for p in leaders if p in starts}
    if begin == "offset":
        at = whole(query, "at", 0)
        return {p: min(max(at, starts[p]), ends[p]) for p in leaders if p in starts and p in ends}
    if begin == "time":
        first = offsets_at(view.brokers, leaders, time_of(query, "at"))
        return {p: offset if offset >= 0 else ends[p] for p, offset in first.items() if p in ends}
    return {p: max(starts.get(p, 0), ends[p] - limit) for p in leaders if p in ends}


def _parsed_next(text: str) -> dict[int, int]:
    try:
        pairs = [part.split(":") for part in text.split(",")]
        return {int(number): int(offset) for number, offset in pairs}
    except ValueError:
        raise QueryError(f"next={text[:40]}: take it from the last answer") from None


def time_of(query: Query, name: str) -> int:
    """Return the time in the parameter `name`, in milliseconds since 1970. Without a zone, it is in UTC.

    Raises QueryError if the parameter is missing or is not a time.
    """
    text = query.get(name, "")
    if text.isdecimal() and len(text) < 16:
        return int(text)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise QueryError(
            f"{name}={text[:40]}: write a time as 2026-03-01T12:00:00Z, or milliseconds since 1970"
        ) from None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


class Search(Generic[T]):
    """A search in a topic. It ends at enough records, or at the limits of bytes and time of one request."""

    def __init__(
        self,
        view: ClusterView,
        topic: Any,
        query: Query,
        passes: Filter | None,
        limit: int,
        row: Row[T],
    ) -> None:
        self._view = view
        self._topic = topic
        self._passes = passes
        self._limit = limit
        self._row = row
        self._markers = choice(query, "markers", ("no", "yes")) == "yes"
        self._until = time_of(query, "until") if query.get("until") else None
        self._masks = view.privacy.paths(topic.name)
        #: by timestamp, partition and offset
        self.rows: list[tuple[tuple[int, int, int], T]] = []
        #: the offset at which the next search continues, and the partitions that have more records
        self.positions: dict[TopicPartition, int] = {}
        self.left: list[TopicPartition] = []
        self.scanned = self.bytes = 0
        self.problem: str | None = None

    def run(
        self,
        leaders: dict[TopicPartition, int],
        positions: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> None:
        """Read records from `positions` to `ends`, and add those that the query selects to `rows`.

        Stop when `rows` has enough records, or after a maximum of bytes or seconds. Set each of `positions`
        to the offset after the last record read. Set `left` to the partitions that have more records to read.
        `leaders` has the partitions' leaders.
        """
        give_up = time.monotonic() + _MAX_SECONDS
        left = [p for p in positions if positions[p] < ends.get(p, 0)]
        while left and not self._is_enough and self.bytes < _MAX_BYTES and time.monotonic() < give_up:
            for leader in {leaders[p] for p in left}:
                some = [p for p in left if leaders[p] == leader]
                self._read(leader, some, positions, ends)
                if self._is_enough:
                    break
            left = [p for p in left if positions[p] < ends[p]]
        self.positions, self.left = positions, left

    @property
    def _is_enough(self) -> bool:
        return len(self.rows) >= self._limit

    def _read(
        self,
        leader: int,
        some: Sequence[TopicPartition],
        positions: dict[TopicPartition, int],
        ends: dict[TopicPartition, int],
    ) -> None:
        wanted = {p.partition: positions[p] for p in some}
        chunks = fetch(self._view.brokers, leader, self._topic, wanted, _AT_ONCE)
        for partition in some:
            if self._is_enough:
                return
            chunk = chunks.get(partition.partition)
            first = positions[partition]
            following = first if chunk is None else next_offset(chunk, first)
            if chunk is None or following == first:
                positions[partition] = ends[partition]
                if chunk is None:
                    self.problem = f"{partition} could not be read"
                continue
            self.bytes += len(chunk.data)
            for found in records_in(chunk, first):
                self.scanned += 1
                if self._take(partition.partition, found) and self._is_enough:
                    following = found.record.offset + 1
                    break
            positions[partition] = following

    def _take(self, partition: int, found: Found) -> bool:
        record = found.record
        if self._until is not None and record.timestamp > self._until:
            return False
        if found.marker:
            if not self._markers or self._passes is not None:
                return False
        elif self._passes is not None and not self._passes(
            candidate(self._view, partition, record, self._masks)
        ):
            return False
        self.rows.append(((record.timestamp, partition, record.offset), self._row(partition, found)))
        return True


def record(view: ClusterView, name: str, query: Query) -> dict[str, Any]:
    """Return the data of one record of the topic `name`, with up to `MAX_SHOWN` characters of each part.

    Query: ``partition``, ``offset``, ``format``.

    Raises:
        QueryError: there is no such record, its partition has no leader, or a part of the query is invalid.
        KafkaError, ClientError: the record cannot be read.
    """
    found = record_of(view, name, query)
    return content(view, found, choice(query, "format", FORMATS), view.privacy.paths(name), MAX_SHOWN)


def record_of(view: ClusterView, name: str, query: Query) -> Record:
    """Return the record that ``partition`` and ``offset`` of a query select in the topic `name`.

    The record may belong to an aborted transaction.

    Raises:
        QueryError: there is no such record, its partition has no leader, or a part of the query is invalid.
        KafkaError, ClientError: the record cannot be read.
    """
    partition = whole(query, "partition", 0, maximum=2**31 - 1)
    return record_at(view, name, partition, whole(query, "offset", 0), with_aborted=True)


def record_at(
    view: ClusterView, name: str, partition: int, offset: int, *, with_aborted: bool = False
) -> Record:
    """Return the record at an offset of a partition of the topic `name`.

    If `with_aborted` is false, a record of an aborted transaction counts as missing. A transaction marker
    always counts as missing.

    Raises:
        QueryError: there is no such record, or its partition has no leader.
        KafkaError, ClientError: the record cannot be read.
    """
    topic = described(view, name)
    leader = view.leaders([name]).get(TopicPartition(name, partition))
    if leader is None:
        raise QueryError(f"partition={partition}: {name[:40]} has no such partition with a leader")
    chunk = fetch(view.brokers, leader, topic, {partition: offset}, 1).get(partition)
    for found in records_in(chunk, offset) if chunk is not None else ():
        if found.record.offset == offset and not found.marker and (with_aborted or not found.aborted):
            return found.record
        break
    raise QueryError(f"offset={offset}: {name[:40]}-{partition} has no such record")


def content(
    view: ClusterView, record: Record, how: str, masks: Masks, max_chars: int = PREVIEW
) -> dict[str, Any]:
    """Return the data of a record for a page: ``key``, ``value``, ``headers`` and ``origin``.

    ``headers`` has [name, value] for each header. The key, the value and the headers' values are results of
    `shown`, each with at most `max_chars` characters. ``origin`` is the topic to which a dead letter can be
    sent again; None for other records. If the console hides values, key and value are `HIDDEN`, and there are
    no headers and no origin.

    `how` is "auto", "text", "json" or "hex". `masks` are paths in the value's JSON to hide.
    """
    if view.privacy.hide_values:
        return {"key": HIDDEN, "value": HIDDEN, "headers": [], "origin": None}
    return {
        "key": shown(record.key, how, view.decode, max_chars=max_chars),
        "value": shown(record.value, how, view.decode, masks, max_chars),
        "headers": [
            [visible(name), shown(value, how, max_chars=max_chars)] for name, value in record.headers
        ],
        "origin": visible(origin(record.headers) or "") or None,
    }


def candidate(view: ClusterView, partition: int, record: Record, masks: Masks) -> Candidate:
    """Convert a record to the form that filters and added columns read. `masks` hide parts of the value."""
    return Candidate(
        partition,
        record.offset,
        record.timestamp,
        compared(record.key, view.decode),
        compared(record.value, view.decode, masks),
        {name: compared(value) for name, value in record.headers},
    )


def _metadata(partition: int, found: Found) -> dict[str, Any]:
    record = found.record
    return {
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "marker": found.marker or None,
        "aborted": found.aborted,
        "open": found.open,
    }
