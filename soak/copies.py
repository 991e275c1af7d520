"""Reads the producer epochs of duplicate and reordered records from the brokers' logs.

A broker identifies a batch by producer id, epoch and sequence. If two copies have the same epoch, the broker
has a defect. If a client sent a record again in a new epoch, the client itself wrote it twice. In a compacted
topic, the second copy removes the first, so the records seem to be in another order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from barnabas.kafka.records import batches
from soak.checker.findings import Finding


def with_epochs(findings: Iterable[Finding], data: Path) -> Iterator[Finding]:
    """Yield the findings. Add the producer epochs in the logs below `data` to duplicate and reordered ones.

    A reordered finding also gets ``removed before``: the number of records that the log lacks directly before
    its record.
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
    """Return the producer epoch of each offset in a log."""
    return {
        offset: header.producer_epoch
        for path in data.rglob(f"{partition}/*.log")
        for _, header in batches(path.read_bytes())
        for offset in range(header.base_offset, header.last_offset + 1)
    }
