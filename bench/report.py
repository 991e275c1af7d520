"""Turns samples into ratios with their spread: a Markdown table, the targets, and JSON.

A ratio above 1 always means that Barnabas is better, whatever the unit. Each ratio compares figures of one
round, in which all brokers ran under the same conditions. The table has the median of all rounds and, in
brackets, the lowest and the highest ratio.
"""

from __future__ import annotations

import json
import os
import platform
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from statistics import median

from bench.workloads import Sample

OURS = "barnabas"
MORE_IS_BETTER = frozenset(
    {"records/s", "connections/s", "transactions/s", "requests/s", "acquired/s", "accepted/s"}
)
# What is aimed at: absolute, or against another in the same run.
MOST = {
    ("start-up", "s"): 0.3,
    ("idle memory", "MB"): 60.0,
    ("group join to first record", "s"): 0.5,
    ("group join to first record, fresh broker", "s"): 0.5,
    ("scale: longest turn of the event loop, 10,000p", "CPU ms"): 5.0,
    ("scale: idle, 10,000p", "% of a core"): 2.0,
    ("scale: clean start, 10,000p", "s"): 5.0,
    ("scale: memory, 10,000p", "KB a partition"): 4.0,
    ("spark exactly-once over at-least-once, 100,000 rows (barnabas)", "% more time"): 25.0,
    ("spark micro-batch, 200 records/s to nowhere (barnabas)", "p50 ms"): 250.0,
}
_COMPARED = ("records/s", "requests/s", "p50 ms", "p99 ms")
NO_WORSE = {
    "synchronous produce": "Apache Kafka",
    "requests of": "Apache Kafka",
    "java produce": "Apache Kafka",
    "java consume": "Apache Kafka",
    "produce 100 B": "Apache Kafka",
    "produce 1 KB": "Apache Kafka",
    "consume 100 B": "Apache Kafka",
    "consume 1 KB": "Apache Kafka",
    "spark read": "Spark's own connector",
    "spark write": "Spark's own connector",
}

#: the share by which a median may be worse and still count as equal, if a round was better
EQUAL = 0.05

Row = tuple[str, str]  # workload, unit


@dataclass
class Results:
    """All samples of a run, by row, broker and round, and the rows that failed."""

    peers: list[str]
    values: dict[Row, dict[str, dict[int, float]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(dict))
    )
    failures: list[str] = field(default_factory=list)

    def add(self, peer: str, round_number: int, sample: Sample) -> None:
        self.values[sample.workload, sample.unit][peer][round_number] = sample.value

    def middle(self, row: Row, peer: str) -> float | None:
        values = self.values[row].get(peer)
        return median(values.values()) if values else None

    def ratios(self, row: Row, peer: str) -> list[float]:
        """Return the ratios of Barnabas to the peer for each round that has both, in order. Above 1, Barnabas
        is better.
        """
        ours, theirs = self.values[row].get(OURS, {}), self.values[row].get(peer, {})
        pairs = [(ours[number], theirs[number]) for number in ours if number in theirs]
        return sorted(
            mine / other if row[1] in MORE_IS_BETTER else other / mine
            for mine, other in pairs
            if mine and other
        )


def table(results: Results) -> str:
    """Return a Markdown table with all rows."""
    others = [peer for peer in results.peers if peer != OURS]
    header = ["workload", "unit", *results.peers, *(f"vs {peer}" for peer in others)]
    lines = [header, ["---", "---", *(["---:"] * (len(header) - 2))]]
    lines.extend(
        [
            *row,
            *(_number(results.middle(row, peer)) for peer in results.peers),
            *(_spread(results.ratios(row, peer)) for peer in others),
        ]
        for row in results.values
    )
    widths = [max(len(line[column]) for line in lines) for column in range(len(header))]
    return "\n".join(
        "| "
        + " | ".join(
            cell.ljust(width) if column < 2 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        + " |"
        for line in lines
    )


def growth(results: Results) -> Iterator[str]:
    """Yield a line for each figure that was measured with several numbers of partitions: its growth."""
    figures: dict[Row, list[tuple[int, Row]]] = defaultdict(list)
    for row in results.values:
        what, comma, partitions = row[0].removesuffix("p").rpartition(", ")
        if row[0].startswith("scale: ") and comma:
            figures[what, row[1]].append((int(partitions.replace(",", "")), row))
    for (what, unit), rows in figures.items():
        for peer in results.peers:
            values = [(n, value) for n, row in rows if (value := results.middle(row, peer)) is not None]
            steps = [
                f"{value / before:.2f} from {fewer:,} to {more:,}p"
                for (fewer, before), (more, value) in pairwise(values)
                if before
            ]
            if steps:
                yield f"{what}, {unit}, {peer}: times {', '.join(steps)}"


def targets(results: Results) -> Iterator[str]:
    """Yield a line for each target: met, equal (the median differs by at most `EQUAL`), or missed."""
    for row in results.values:
        workload, unit = row
        if (maximum := MOST.get(row)) is not None and (ours := results.middle(row, OURS)) is not None:
            verdict = "met" if ours <= maximum else "MISSED"
            yield f"{verdict:6} {workload}: {_number(ours)} {unit} (at most {maximum:g})"
        elif unit in _COMPARED and (ratios := results.ratios(row, "kafka")):
            for other in (name for prefix, name in NO_WORSE.items() if workload.startswith(prefix)):
                verdict = _verdict(ratios)
                yield f"{verdict:6} {workload}, {unit}: {_spread(ratios)} times as good as {other}"


def _verdict(ratios: list[float]) -> str:
    """Return the result for one target. A median far below the target is missed, even
    if one round was better.
    """
    if median(ratios) >= 1:
        return "met"
    return "equal" if median(ratios) >= 1 - EQUAL and ratios[-1] >= 1 else "MISSED"


def write_json(parts: list[Results], path: Path) -> None:
    """Write every sample of every part of a run as JSON, with a description of the machine."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"machine": machine(), "parts": [_as_json(part) for part in parts]}, indent=1))


def _as_json(results: Results) -> dict[str, object]:
    return {
        "peers": results.peers,
        "failures": results.failures,
        "rows": [
            {
                "workload": workload,
                "unit": unit,
                "samples": {peer: list(rounds.values()) for peer, rounds in by_peer.items()},
                "ratios": {
                    peer: results.ratios((workload, unit), peer) for peer in results.peers if peer != OURS
                },
            }
            for (workload, unit), by_peer in results.values.items()
        ],
    }


def machine() -> str:
    """Return a description of this machine."""
    system = f"{platform.system()} {platform.machine()}"
    return f"{os.cpu_count()} cores, {system}, Python {platform.python_version()}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def _spread(ratios: list[float]) -> str:
    return f"{median(ratios):.2f} ({ratios[0]:.2f}..{ratios[-1]:.2f})" if ratios else "-"
