"""The history of a soak: a file of JSON lines for each process, with its operations and their outcomes.

The first line of a file names the process. Each line has the event (`what`) and its time (`at`), in
nanoseconds of the system's monotonic clock, which all processes of one machine share. A process writes the
line of an operation before the operation, with one system call. So the line survives the end of the process.

    process     name, role, client, and further fields of the role (group, isolation ...)
    send        id, to [topic, partition], key, txn (number), source [topic, partition, offset]; null: none;
                tombstone: true if the record has no value, which deletes its key
    ack         id, offset (-1: the client does not know it)
    nack        id, error, unknown (false: the client certainly did not send it)
    former      id: the client sends the record to a broker that does not know yet that the topic was deleted,
                so readers can receive it from the deleted topic
    init        InitProducerId is called;   inited: it returned
    begin       txn
    offsets     txn, group, offsets [[topic, partition, offset], ...]: the transaction will commit these
    end         txn, commit (false: abort)
    ended       txn, commit, ok (false: the outcome is unknown), error
    assigned    partitions [[topic, partition], ...];   revoked: the same
    seek        offsets [[topic, partition, offset], ...]: the consumer continues there
    poll        records [[topic, partition, offset, id], ...]
    commit      number, offsets [[topic, partition, offset], ...];   committed: number, ok, error
    forget      topics {topic: number of partitions}: the client deletes its group or its offsets there;
    forgot      ok (false: the broker has rejected it). Without this line, the outcome is unknown
    gave_up     why, seconds (of waiting), answered (whether the broker answered another client at that time),
                states (two states of the process's transactional id from the broker, some seconds apart),
                kept [[topic, partition, leader epoch of the client, of the brokers], ...]: only of a producer
                that keeps the leader epochs of a deleted topic
    fault       fault, target: the soak began this fault on a broker or a client
    stopped     target: the soak stopped this client permanently
    calm        the faults have ended
    delete      number, offsets [[topic, partition, offset], ...]: DeleteRecords is called;
    deleted     number, ok, error: with ok, no reader may receive a record before these offsets
    bounds      asked (time of the call), bounds [[topic, partition, log start, high watermark], ...]
    create      topic;   created: topic, ok, topic_id (null: unknown), existed (before the call), error
    remove      topic: DeleteTopics is called;   removed: topic, ok, existed, error
    scan        asked, topic, partition, records [[offset, id, key], ...]: all records that a reader found
    log         topic, partition, isolation, start, end, records [[offset, id, key], ...]: at the end of the
                soak; is_whole: false if the reads did not reach the end
    group       group, offsets [[topic, partition, offset], ...]: the committed offsets at the end of the soak
    share_request  number, session (the member's session with a broker), verdicts [[topic, partition, offset,
                type], ...]: a member of a share group fetches, acknowledges or renews (types: KIP-932)
    acknowledged  number, results [[topic, partition, error or null], ...]: the answer to its verdicts
    acquired    number, records [[topic, partition, offset, id, delivery count], ...]: the session goes on;
                leases [[topic, partition, lease], ...]: where the broker certainly led the partition, a name
                of its leader epoch and of the broker's process
    share_settings  group, lock (nanoseconds), limit (of deliveries), isolation
    share_offsets  group, offsets [[topic, partition, start offset], ...]: at the end
    topic       name, compacted (old values may be removed), retention_ms, retention_bytes (null: no limit)
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

Event: TypeAlias = dict[str, Any]


class Recorder:
    """Writes the history of one process."""

    def __init__(self, path: Path, **about: Any) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.note("process", **about)

    def note(self, what: str, **fields: Any) -> None:
        line = json.dumps({"what": what, "at": time.monotonic_ns(), **fields}, separators=(",", ":"))
        os.write(self._fd, line.encode() + b"\n")


def read(directory: Path) -> Iterator[Iterator[Event]]:
    """Yield the histories in a directory, one for each process."""
    for path in sorted(directory.glob("*.jsonl")):
        yield parse(path.read_text().splitlines())


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """Yield the events of one history. Ignore an incomplete last line."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            return
        yield event
