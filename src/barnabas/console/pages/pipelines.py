"""The page of pipelines, from the records in their status topic: state, rates, lag, the last error.

The newest record of a pipeline counts. A record without a value removes the pipeline. Other programs may
write to the topic, so every field is checked.
"""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Any

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.fetching import fetch, next_offset, records_in
from barnabas.client.offset_calls import EARLIEST, LATEST, offsets_at
from barnabas.console.pages.query import Query
from barnabas.console.pages.topic import described
from barnabas.console.shown import MAX_SHOWN, NOT_JSON, parsed, visible
from barnabas.console.view import ClusterView

#: the default status topic of pipelines
STATUS_TOPIC = "barnabas-pipelines"
#: a pipeline that runs and has not written for so many of its own intervals is silent
_SILENT_AFTER = 3.0
_EVERY_S = 5.0
#: how much one request reads; the next continues where it ended
_MAX_SECONDS, _AT_ONCE = 2.0, 1 << 20
_MAX_PIPELINES, _MAX_QUERIES, _MAX_CHARS = 1000, 50, 4000
_RUNNING = ("running", "stopping")


class Pipelines:
    """The newest status of each pipeline, from the status topic. Any thread can use this object.

    It reads the topic only when a page is requested, from where the last read ended.
    """

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._lock = threading.Lock()
        self._topic_id: bytes = b""
        self._positions: dict[TopicPartition, int] = {}
        self._known: dict[str, dict[str, Any]] = {}

    def page(self, query: Query) -> dict[str, Any]:
        """Read new records of the status topic. Return the data of the pipelines page."""
        with self._lock:
            try:
                left = self._read()
            except KafkaError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                words = f"no pipeline writes its status here: there is no topic {STATUS_TOPIC}"
                return {"pipelines": [], "problem": words, "left": 0}
            now = self._view.clock.now_ms() / 1000
            rows = [self._row(name, status, now) for name, status in sorted(self._known.items())]
        return {"pipelines": rows, "problem": None, "left": left}

    def _read(self) -> int:
        """Read records for some seconds at most. Return the number of records that are left."""
        brokers = self._view.brokers
        topic = described(self._view, STATUS_TOPIC)
        if bytes(topic.topic_id) != self._topic_id:  # a topic that was made anew begins anew
            self._topic_id = bytes(topic.topic_id)
            self._positions.clear()
            self._known.clear()
        leaders = self._view.leaders([STATUS_TOPIC])
        ends, starts = offsets_at(brokers, leaders, LATEST), offsets_at(brokers, leaders, EARLIEST)
        give_up = time.monotonic() + _MAX_SECONDS
        left = 0
        for partition, end in ends.items():
            position = max(self._positions.get(partition, 0), starts.get(partition, 0))
            while position < end and time.monotonic() < give_up:
                following = self._take(leaders[partition], topic, partition.partition, position)
                if following == position:
                    break
                position = following
            self._positions[partition] = position
            left += max(0, end - position)
        return left

    def _take(self, leader: int, topic: Any, partition: int, first: int) -> int:
        chunk = fetch(self._view.brokers, leader, topic, {partition: first}, _AT_ONCE).get(partition)
        if chunk is None:
            return first
        for found in records_in(chunk, first):
            key = found.record.key
            if found.marker or found.aborted or key is None:
                continue
            name = _text(key.decode(errors="replace"))
            value = found.record.value
            status = parsed(value.decode(errors="replace")) if value is not None else NOT_JSON
            self._known.pop(name, None)
            if isinstance(status, dict) and len(self._known) < _MAX_PIPELINES:
                self._known[name] = status
        return next_offset(chunk, first)

    def _row(self, name: str, status: dict[str, Any], now: float) -> dict[str, Any]:
        state = _text(status.get("state"))
        every = _number(status.get("every_s")) or _EVERY_S
        updated = _seconds(status.get("updated"))
        is_silent = state in _RUNNING and (updated is None or now - updated > _SILENT_AFTER * every)
        queries = status.get("queries")
        alerts = status.get("alerts")
        return {
            "name": name,
            "state": "silent" if is_silent else state,
            "host": _text(status.get("host")),
            "file": _text(status.get("file")),
            "started": _text(status.get("started")),
            "updated": _text(status.get("updated")),
            "alerts": [_text(each) for each in alerts[:_MAX_QUERIES]] if isinstance(alerts, list) else [],
            "queries": [self._query(each) for each in queries[:_MAX_QUERIES] if isinstance(each, dict)]
            if isinstance(queries, list)
            else [],
        }

    def _query(self, query: dict[str, Any]) -> dict[str, Any]:
        error = _text(query.get("last_error"))
        return {
            "name": _text(query.get("query")),
            "state": _text(query.get("state")),
            "rows_a_second": _number(query.get("processed_rows_per_second")),
            "rows_read": _number(query.get("rows_read")),
            "rows_written": _number(query.get("rows_written")),
            "rows_rejected": _number(query.get("rows_rejected")),
            "batch_ms": _number(query.get("batch_ms")),
            "lag": _number(query.get("lag")),
            "restarts": _number(query.get("restarts")),
            # an error may quote the record that caused it
            "error": "hidden" if error and self._view.privacy.hide_values else error,
            "error_at": _text(query.get("last_error_at")),
            "recovered_at": _text(query.get("recovered_at")),
        }


def _text(value: Any) -> str:
    return visible(value[: min(_MAX_CHARS, MAX_SHOWN)]) if isinstance(value, str) else ""


def _number(value: Any) -> float | None:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 2**53 else None


def _seconds(value: Any) -> float | None:
    """Return the seconds since 1970 of an ISO 8601 time, in UTC if it has no zone; None for other values."""
    try:
        at = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
