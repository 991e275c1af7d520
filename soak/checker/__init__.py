"""The checker: reads the histories of clients and returns results that Kafka does not allow.

It knows nothing of clients, brokers or files, only of events (`soak.history`). It looks for the anomalies
that Jepsen's reports on Kafka, Redpanda and Bufstream describe, and for anomalies of consumer groups
(`findings.KINDS`). It does not report results that Kafka allows:

- transactions that write to the same partition at the same time (G0);
- a send that timed out and takes effect late;
- a consumer that starts again from the committed offset after a rebalance;
- records that retention, compaction, DeleteRecords or the deletion of their topic removed.
"""

from __future__ import annotations

from collections.abc import Iterable

from soak.checker import bounds, groups, letters, reads, shares, topics, transactions, waiting, writes
from soak.checker.excuses import Excuse, sift
from soak.checker.findings import KINDS, Finding, counted
from soak.checker.model import History
from soak.history import Event

__all__ = ["KINDS", "Excuse", "Finding", "check", "counted", "sift"]


def check(histories: Iterable[Iterable[Event]]) -> list[Finding]:
    """Return all anomalies in the histories of one soak. There is one history for each process."""
    history = History(histories)
    return [
        finding
        for part in (writes, reads, transactions, groups, shares, letters, bounds, topics, waiting)
        for finding in part.check(history)
    ]
