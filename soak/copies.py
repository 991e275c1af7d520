"""Reads from the brokers' logs by which producer epoch each copy of a duplicate record was written.

A broker tells batches apart by producer id, epoch and sequence. Copies of one epoch are the broker's fault. A
client that sends a record again in a new epoch has written it twice itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

from barnabas.kafka.records import batches
from soak.checker.findings import Finding


def with_epochs(findings: Iterable[Finding], data: Path) -> Iterator[Finding]:
    """The findings, those of duplicates with the producer epoch of each copy in the logs below `data`."""
    for finding in findings:
        if finding.kind == "duplicate":
            topic, partition = finding.evidence["partition"]
            epochs = _epochs(data, f"{topic}-{partition}", finding.evidence["offsets"])
            finding = replace(finding, evidence=finding.evidence | {"epochs": epochs})
        yield finding


def _epochs(data: Path, partition: str, offsets: list[int]) -> list[int]:
    """The producer epoch at each offset, -1 where no log has it."""
    found = dict.fromkeys(offsets, -1)
    for path in data.rglob(f"{partition}/*.log"):
        for _, header in batches(path.read_bytes()):
            for offset in offsets:
                if header.base_offset <= offset <= header.last_offset:
                    found[offset] = header.producer_epoch
    return list(found.values())
