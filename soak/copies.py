"""Reads from the brokers' logs by which producer epochs duplicate and reordered records were written.

A broker tells batches apart by producer id, epoch and sequence. Copies of one epoch are the broker's fault. A
client that sends a record again in a new epoch has written it twice itself. In a compacted topic the second
copy removes the first one, so the record seems to be reordered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from barnabas.kafka.records import batches
from soak.checker.findings import Finding


def with_epochs(findings: Iterable[Finding], data: Path) -> Iterator[Finding]:
    """Yield the findings; duplicate and reordered ones with the producer epochs in the logs below `data`.

    A reordered one also has ``removed before``: how many records the log lacks right before its record.
    """
    for finding in findings:
        if finding.kind in ("duplicate", "reordered"):
            topic, partition = finding.evidence["partition"]
            epochs = _epochs(data, f"{topic}-{partition}")
            if finding.kind == "duplicate":
                more = {"epochs": [epochs.get(offset, -1) for offset in finding.evidence["offsets"]]}
            else:
                offset = finding.evidence["offset"]
                before = max((each for each in epochs if each < offset), default=offset - 1)
                more = {
                    "epochs": [epochs.get(each, -1) for each in (offset, finding.evidence["the other's"])],
                    "removed before": offset - 1 - before,
                }
            finding = replace(finding, evidence=finding.evidence | more)
        yield finding


def _epochs(data: Path, partition: str) -> dict[int, int]:
    """Return the producer epoch by offset, of all offsets that a log has."""
    return {
        offset: header.producer_epoch
        for path in data.rglob(f"{partition}/*.log")
        for _, header in batches(path.read_bytes())
        for offset in range(header.base_offset, header.last_offset + 1)
    }
