"""The checker: from the history of what clients did and saw to what should not have happened.

It knows nothing of clients, brokers or files, only of events (`soak.history`). What it looks for are the
anomalies that Jepsen's reports on Kafka, Redpanda and Bufstream name, and those of consumer groups
(`findings.KINDS`). What Kafka allows is no finding: transactions that write the same partition interleaved
(G0), a send that timed out and comes late, a rebalance that takes a consumer back to the committed offset,
records taken away by retention, compaction, DeleteRecords or the deletion of their topic.
"""

from __future__ import annotations

from collections.abc import Iterable

from soak.checker import bounds, groups, reads, topics, transactions, waiting, writes
from soak.checker.excuses import Excuse, sift
from soak.checker.findings import KINDS, Finding, counted
from soak.checker.model import History
from soak.history import Event

__all__ = ["KINDS", "Excuse", "Finding", "check", "counted", "sift"]


def check(histories: Iterable[Iterable[Event]]) -> list[Finding]:
    """Everything that is wrong in the histories of one soak, one a process."""
    history = History(histories)
    return [
        finding
        for part in (writes, reads, transactions, groups, bounds, topics, waiting)
        for finding in part.check(history)
    ]
