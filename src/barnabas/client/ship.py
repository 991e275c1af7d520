"""Ships log files into a topic: each record once, despite rotation, restarts and crashes.

These rules prevent lost and repeated records, without transactions:

- A source's records go to one partition. The producer is idempotent, and fails instead of leaving a gap
  (librdkafka's `enable.gapless.guarantee`). So the topic always has all records from the first to the last
  one sent.
- Each record has its number and the file position after it (`barnabas.client.ship_state`). So the last one
  in the topic shows where to continue, even if an acknowledgement or a state file is lost.
- One process at a time ships a source (a lock). After a crash the next one waits until no records have
  arrived for a moment. Bytes of the crashed process may still be on their way to the broker.

Transactions would fence the crashed process at once. But its uncommitted records would be aborted and shipped
again. Readers of uncommitted records, the default of Kafka and Spark, would read them twice.

The timestamp of a record is the time of shipping, because the topic's retention counts from this timestamp.
With the line's own time as the timestamp, retention would delete lines of last year at once. The line's own
time is in the record's value.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer, murmur2

from barnabas.base.environment.clock import SystemClock
from barnabas.base.types import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.consumer import Consumer
from barnabas.client.errors import ClientError, translate
from barnabas.client.log_lines import parse_line
from barnabas.client.multiline import Gathered, LineGrouper
from barnabas.client.outages import OutageWarning
from barnabas.client.settings import create_client
from barnabas.client.ship_files import SourceFile, find_sources
from barnabas.client.ship_recovery import find_shipped
from barnabas.client.ship_state import HEADER, Shipped, SourceState, encode_header
from barnabas.client.tail import FileTail, Position
from barnabas.client.topic_check import ensure_topic

__all__ = ["parse_line", "Shipper", "Progress"]

#: The number of lines read from one source before the next has its turn.
_TURN = 2_000
_SAVE_INTERVAL = 1.0
#: Seconds without records after which no record of a killed shipper is expected any more.
_SETTLE = 0.5
#: Seconds that a writer has to close a renamed file.
_GRACE = 1.0


@dataclass(slots=True)
class Progress:
    """The numbers of files, lines, records and bytes of a shipper so far.

    `sent` and `acknowledged` count records. `bytes_total` includes the bytes that are not read yet, so it
    grows with the files.
    """

    files: int = 0
    lines: int = 0
    sent: int = 0
    acknowledged: int = 0
    bytes_read: int = 0
    bytes_total: int = 0
    #: records of earlier runs, found in the topic or in the state files
    found: int = 0
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _Source:
    name: str
    tail: FileTail
    partition: int
    state: SourceState
    number: int
    grouper: LineGrouper[Position]
    shipped: Shipped
    last_line_at: float = 0.0


class Shipper:
    """Ships files into a topic.

    Each log record becomes a JSON record (see `parse_line`) with the source as its key.

    Args:
        bootstrap: addresses of brokers, `host:port,...`
        topic: topic to ship to. If it does not exist, the broker creates it with its defaults, unless the
            broker's settings forbid that.
        files: paths, or a mapping of paths to the names of their sources. Without a mapping, the name is the
            absolute path. If `files` has `app.log.1` and `app.log`, the rotated file `app.log.1` belongs to
            the source of `app.log`, and is read first.
        follow: whether to wait for new lines until `stop`. If false, `run` ends when all records of the files
            are acknowledged.
        state_dir: folder of the state files; by default in `$XDG_STATE_HOME/barnabas/ship`.
        on_progress: called a few times a second in `run`, always with the same `Progress` object.
        poll_interval: seconds between checks of quiet files, above 0.
        flush_after: seconds after which a record that might continue (a stack trace) is complete.
        settings: more producer settings of librdkafka, e.g. {"compression.type": "zstd"}. Values for the
            client id, idempotence, and ``message.timeout.ms`` (0) have no effect.

    `run` can be called once.

    Raises:
        ClientError: the files cannot be shipped (see `ship_files.find_sources`).
    """

    def __init__(
        self,
        bootstrap: str,
        topic: str,
        files: Iterable[str | Path] | Mapping[Path, str],
        *,
        follow: bool = False,
        state_dir: Path | None = None,
        on_progress: Callable[[Progress], None] | None = None,
        poll_interval: float = 0.2,
        flush_after: float = 1.0,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self._bootstrap = bootstrap
        self._topic = topic
        self._files = find_sources(files)
        self._follow = follow
        self._state_root = state_dir if state_dir is not None else _default_state_dir()
        self._on_progress = on_progress
        self._poll_interval = poll_interval
        self._flush_after = flush_after
        self._settings = dict(settings or {})
        self._host = socket.gethostname()
        self._stopped = threading.Event()
        self._failure: Exception | None = None
        self._sources: list[_Source] = []
        self._next_save = 0.0
        self.progress = Progress(files=len(self._files))

    def stop(self) -> None:
        """End `run` when all sent records are acknowledged. A signal handler or any thread can call it."""
        self._stopped.set()

    def run(self) -> Progress:
        """Ship the files, and return the progress.

        With `follow`, the call returns after `stop`. Without it, the call returns after the ends of the
        files.

        Raises:
            ClientError: no broker answers, a file cannot be read, another shipper ships one of the sources,
                or the broker permanently rejected a record.
            KafkaError: the broker answers another request with an error.
        """
        settings = {
            "linger.ms": 20,
            "compression.type": "lz4",
            **self._settings,
            "client.id": "barnabas-ship",
            "enable.idempotence": True,
            "enable.gapless.guarantee": True,
            "message.timeout.ms": 0,  # a record waits for its broker for as long as it takes
            "error_cb": OutageWarning(self._bootstrap, "what is to be shipped waits until one does"),
        }
        producer = create_client(Producer, self._bootstrap, settings)
        try:
            partitions = ensure_topic(producer, self._topic, self._bootstrap)
            self._open_sources(partitions)
            try:
                while not self._stopped.is_set() and self._failure is None:
                    moved = [self._ship_some(source, producer) for source in self._sources]
                    producer.poll(0)
                    self._report()
                    if any(moved):
                        continue
                    if not self._follow:
                        break
                    self._stopped.wait(self._poll_interval)
            finally:
                self._finish(producer)
        except KafkaException as error:
            # librdkafka raises a fatal error from whatever is called next, before the delivery report comes.
            fatal = error.args[0].fatal()
            raise self._failure or (_refused(error) if fatal else translate(error)) from None
        finally:
            for source in self._sources:
                source.tail.close()
                source.state.close()
        if self._failure is not None:
            raise self._failure
        return self.progress

    # -- beginning

    def _open_sources(self, partitions: int) -> None:
        admin = Admin(self._bootstrap)
        [described] = admin.describe_topics([self._topic])
        directory = self._state_root / f"{self._topic}-{described.topic_id}"
        directory.mkdir(parents=True, exist_ok=True)
        scanned = (
            directory / "scanned"
        )  # the topic has been read for sources shipped before this directory was
        states: dict[str, SourceState] = {}
        try:
            for file in self._files:
                states[file.source] = SourceState(directory, file.source)
            with Consumer(self._bootstrap) as consumer:
                found = find_shipped(
                    consumer,
                    self._topic,
                    self._host,
                    {name: state.shipped for name, state in states.items()},
                    scan_unknown=not scanned.exists(),
                    settle=0.0 if all(state.clean for state in states.values()) else _SETTLE,
                )
            scanned.touch()
            targets = [TopicPartition(self._topic, partition) for partition in range(partitions)]
            ends = {each.partition: end for each, end in admin.offsets(targets, "latest").items()}
            for file in self._files:
                state = states.pop(file.source)
                self._sources.append(self._source(file, state, found.get(file.source), ends))
        finally:
            for state in states.values():  # those that came to nothing
                state.close()

    def _source(
        self, file: SourceFile, state: SourceState, shipped: Shipped | None, ends: Mapping[int, int]
    ) -> _Source:
        partition = murmur2(file.source.encode(), len(ends))  # where Kafka's own clients put this key
        if shipped is None and state.shipped is not None and state.shipped.number == 0:
            shipped = state.shipped  # nothing was shipped, but the file it would have been from is known
        tail = FileTail(
            file.path,
            shipped.position if shipped is not None else None,
            since_ns=shipped.time_ms * 1_000_000 if shipped is not None else 0,
            history=file.history,
            grace_polls=max(round(_GRACE / self._poll_interval), 1),
        )
        if shipped is None:
            position = None if file.history else tail.position
            shipped = Shipped(0, position, partition, ends[partition] - 1, SystemClock().now_ms())
        elif shipped.partition != partition:  # the topic has more partitions than before
            shipped = replace(shipped, partition=partition, offset=ends[partition] - 1)
        self.progress.found += shipped.number
        state.save(shipped, clean=False)
        return _Source(file.source, tail, partition, state, shipped.number, LineGrouper(), shipped)

    # -- the work

    def _ship_some(self, source: _Source, producer: Producer) -> bool:
        """Read and send some records. Return whether there were any."""
        for count in range(_TURN):
            line = source.tail.next_line(final=not self._follow)
            if line is None:
                self._end_of_lines(source, producer, fresh=count > 0)
                return count > 0
            self.progress.lines += 1
            self.progress.bytes_read += len(line)
            text = line.decode("utf-8", "backslashreplace").rstrip("\r\n")
            finished = source.grouper.add(text, source.tail.position)
            if finished is not None:
                self._send(source, finished, producer)
        return True

    def _end_of_lines(self, source: _Source, producer: Producer, *, fresh: bool) -> None:
        now = time.monotonic()
        if fresh:
            source.last_line_at = now
        if source.grouper.pending and (not self._follow or now - source.last_line_at >= self._flush_after):
            finished = source.grouper.flush()
            if finished is not None:
                self._send(source, finished, producer)

    def _send(self, source: _Source, record: Gathered[Position], producer: Producer) -> None:
        if not record.text:  # blank lines only: nothing to ship, and the next record's position covers them
            return
        source.number += 1
        number, position = source.number, record.end
        value = _to_json(parse_line(record.text, source.name))
        while self._failure is None:
            try:
                producer.produce(
                    self._topic,
                    value,
                    source.name.encode(),
                    source.partition,
                    on_delivery=partial(self._delivered, source, number, position),
                    headers=[(HEADER, encode_header(number, position, self._host))],
                )
            except BufferError:  # librdkafka's queue is full: let it drain
                producer.poll(0.1)
                self._report()
                continue
            self.progress.sent += 1
            return

    def _delivered(self, source: _Source, number: int, position: Position, error: Any, message: Any) -> None:
        if error is not None:
            self._failure = self._failure or _refused(error)
            return
        self.progress.acknowledged += 1
        source.shipped = Shipped(
            number, position, message.partition(), message.offset(), message.timestamp()[1]
        )

    def _report(self) -> None:
        now = time.monotonic()
        if now >= self._next_save:
            self._next_save = now + _SAVE_INTERVAL
            self._save(clean=False)
        if self._on_progress is not None:
            self._update_progress()
            self._on_progress(self.progress)

    def _update_progress(self) -> None:
        unread = sum(source.tail.unread for source in self._sources)
        self.progress.bytes_total = self.progress.bytes_read + unread
        for source in self._sources:
            self.progress.warnings += source.tail.warnings
            source.tail.warnings.clear()

    def _save(self, *, clean: bool) -> None:
        for source in self._sources:
            if source.shipped != source.state.shipped or clean != source.state.clean:
                source.state.save(source.shipped, clean=clean)

    def _finish(self, producer: Producer) -> None:
        """Send pending records, wait for every acknowledgement, and write the progress."""
        for source in self._sources:
            finished = source.grouper.flush() if self._failure is None else None
            if finished is not None:
                self._send(source, finished, producer)
        while self._failure is None and producer.flush(0.2):
            self._report()
        self._save(clean=self._failure is None)
        self._update_progress()
        if self._on_progress is not None:
            self._on_progress(self.progress)


def _to_json(fields: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(fields, ensure_ascii=False)
    except RecursionError:  # a structured line nested just so that it could be read and cannot be written
        text = json.dumps({name: fields[name] for name in ("source", "level", "message", "timestamp")})
    return text.encode("utf-8", "backslashreplace")  # JSON may spell half a surrogate pair


def _refused(error: Any) -> ClientError:
    return ClientError(
        f"the broker rejected a record permanently ({translate(error)}): no record after it was sent; "
        "correct the cause, and run `barnabas ship` again"
    )


def _default_state_dir() -> Path:
    root = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(root) / "barnabas" / "ship"
