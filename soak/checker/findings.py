"""The checker's result: an anomaly in the histories."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

#: every kind of finding, with what it means
KINDS = {
    "lost-write": "a record that was acknowledged, or committed, is not in the log",
    "unreadable": "a partition could not be read to its end",
    "lost-read": "a record that a reader was given is not in the log",
    "duplicate": "a record of an idempotent producer is in the log more than once",
    "phantom": "a record is in the log that nobody sent, or that was never sent off",
    "reordered": "records of one producer to one partition do not lie in the order in which they were sent",
    "moved-offset": "a record was acknowledged at, or read from, an offset where the log has another",
    "aborted-read": "a reader of committed records was given one that was not committed in the end",
    "dirty-read": "a reader of committed records was given one before its transaction was to be committed",
    "read-past-stable": "a reader of committed records was given one behind a transaction still open",
    "nonmonotonic-poll": "a consumer's offsets went back though nothing had moved it",
    "poll-skip": "a consumer passed over a record that it should have been given",
    "torn-transaction": "a part of a transaction can be read, another cannot",
    "aborted-visible": "a transaction can be read though it was aborted, or never committed",
    "hanging-transaction": "the last stable offset stays behind when every transaction should be over",
    "processed-twice": "an exactly-once loop made two outputs of one input",
    "processed-never": "an exactly-once loop committed an input's offset without its output",
    "uncommitted-output": "an exactly-once loop's output can be read, its input's offset is not committed",
    "offset-jump": "a consumer began where its group has never committed, or not any more",
    "group-skip": "a group's committed offset lies behind a record that no member was given",
    "undeleted": "records that DeleteRecords took are there again",
    "deleted-early": "a log's start has passed records that nothing was to take yet",
    "truncated": "a partition's high watermark went back",
    "resurrected": "what was deleted is there again: records with a new topic, a value that a tombstone took",
    "lost-topic": "a topic that was made, and that nobody deleted, is not there",
    "stalled-group": "a group did not come to the end of its partitions when all was quiet",
    "delivered-after-acknowledgement": "a share group delivered a record again after its acknowledgement",
    "locked-twice": "two members of a share group had the same record at the same time",
    "delivered-too-often": "a share group delivered a record more often than its limit allows",
    "count-fell": "a record of a share group has a lower delivery count than before",
    "lost-in-share-group": "a share group skipped a record that no member has finished",
    "stalled-share-group": "a share group did not come to the end of its partitions when all was quiet",
    "dead-letter-twice": "a record that a share group gave up has two dead letters",
    "dead-letter-lost": "a record that a share group gave up has no dead letter",
    "dead-letter-without-cause": "a record that a share group did not give up has a dead letter",
    "dead-letter-differs": "a dead letter does not have its record's contents or a possible delivery count",
    "stalled-client": "a client waited for ever in a single call",
    "stalled-producer": "a producer got nothing done when all was quiet",
}


@dataclass(frozen=True)
class Finding:
    """One anomaly: its kind (`KINDS`), a description, and the events or records that prove it."""

    kind: str
    text: str
    evidence: dict[str, Any] = field(default_factory=dict)
    #: the client library that saw it, where that matters
    client: str = ""

    def __post_init__(self) -> None:
        assert self.kind in KINDS, self.kind


def counted(findings: Iterable[Finding]) -> dict[str, int]:
    """Return the number of findings of each kind."""
    counts: dict[str, int] = {}
    for finding in findings:
        counts[finding.kind] = counts.get(finding.kind, 0) + 1
    return counts
