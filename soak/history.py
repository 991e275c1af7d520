"""The history of a soak: what each process set out to do and what came of it, a file of JSON lines each.

The first line of a file says whose it is; each line has `what` happened and `at`, in nanoseconds of the
system's monotonic clock, which all processes of one machine share. A line is written before what it announces
is done, with one system call, so it survives the death of its process.

    process     name, role, client, and what else the role says of itself (group, isolation ...)
    send        id, to [topic, partition], key, txn (number), source [topic, partition, offset]; null: none;
                tombstone: true when it has no value, which deletes its key
    ack         id, offset (-1: the client does not know it)
    nack        id, error, unknown (false: it was certainly never sent)
    init        the transactional id is being taken;   inited
    begin       txn
    offsets     txn, group, offsets [[topic, partition, offset], ...]: to be committed with the transaction
    end         txn, commit (false: abort)
    ended       txn, commit, ok (false: nobody knows), error
    assigned    partitions [[topic, partition], ...];   revoked: the same
    seek        offsets [[topic, partition, offset], ...]: the consumer goes on from there
    poll        records [[topic, partition, offset, id], ...]
    commit      number, offsets [[topic, partition, offset], ...];   committed: number, ok, error
    gave_up     why, seconds (waited until then), answered (whether the broker answered somebody else then),
                states (of the process' transactional id, as the broker told them, some seconds apart)
    fault       fault, target: what the soak did to a broker or a client
    stopped     target: a client that is gone for good, by our will
    calm        no more faults from here on
    delete      number, offsets [[topic, partition, offset], ...]: DeleteRecords is called;
    deleted     number, ok, error: with ok, no reader may be given what lies before these offsets
    bounds      asked (time of the call), bounds [[topic, partition, log start, high watermark], ...]
    create      topic;   created: topic, ok, topic_id (null: not known), existed (it was there already), error
    remove      topic;   removed: topic, ok, existed, error: a topic is deleted
    scan        asked, topic, partition, records [[offset, id, key], ...]: all that a reader found then
    log         topic, partition, isolation, start, end, records [[offset, id, key], ...]: at the end;
                is_whole: false when it could not be read up to there
    group       group, offsets [[topic, partition, offset], ...]: what it has committed at the end
    topic       name, compacted (old values may go), retention_ms, retention_bytes (null: nothing goes by it)
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
    """Writes one process's history."""

    def __init__(self, path: Path, **about: Any) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self.note("process", **about)

    def note(self, what: str, **fields: Any) -> None:
        line = json.dumps({"what": what, "at": time.monotonic_ns(), **fields}, separators=(",", ":"))
        os.write(self._fd, line.encode() + b"\n")


def read(directory: Path) -> Iterator[Iterator[Event]]:
    """The histories in a directory, one a process."""
    for path in sorted(directory.glob("*.jsonl")):
        yield parse(path.read_text().splitlines())


def parse(lines: Iterable[str]) -> Iterator[Event]:
    """The events of one history; a last line that its process could not finish is passed over."""
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            return
        yield event
