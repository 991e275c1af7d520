"""The output of a soak: the number of operations, the faults and the findings."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from soak.checker import KINDS, Excuse, Finding, counted
from soak.history import Event

#: findings of one kind that are shown; the file has all
SHOWN = 3


def operations(histories: Iterable[Iterable[Event]]) -> Counter[str]:
    """Count the operations of all clients, by a description."""
    counts: Counter[str] = Counter()
    for events in histories:
        for event in events:
            what = event["what"]
            if what == "send":
                counts["records sent"] += 1
            elif what == "ack":
                counts["records acknowledged"] += 1
            elif what == "poll":
                counts["records read"] += len(event["records"])
            elif what == "ended" and event["ok"]:
                counts["transactions committed" if event["commit"] else "transactions aborted"] += 1
            elif what == "committed" and event["ok"]:
                counts["offset commits"] += 1
            elif what == "acquired":
                counts["records delivered to workers"] += len(event["records"])
            elif what == "acknowledged":
                counts["acknowledgements of workers"] += 1
            elif what == "assigned":
                counts["assignments"] += 1
    return counts


def complaints(outputs: Iterable[Path]) -> Counter[str]:
    """Count the warnings and errors of the brokers, without the numbers in them."""
    found: Counter[str] = Counter()
    lines = (line for path in outputs for line in path.read_text(errors="replace").splitlines())
    for line in lines:
        _, _, said = line.partition(" WARNING ")
        said = said or line.partition(" ERROR ")[2]
        if said or line.startswith("Traceback"):
            said = re.sub(r"retention of \S+", "retention of a log:", said)
            found[re.sub(r"\d+", "N", said or line)[:160]] += 1
    return found


def text(
    operations: Mapping[str, int],
    faults: Mapping[str, int],
    crashes: list[str],
    findings: list[Finding],
    excused: list[tuple[Finding, Excuse]],
    complaints: Mapping[str, int],
) -> str:
    lines = [", ".join(f"{count:,} {name}" for name, count in sorted(operations.items()))]
    lines.append(
        "faults: " + (", ".join(f"{count} x {name}" for name, count in sorted(faults.items())) or "none")
    )
    if crashes:
        lines.append(f"{len(crashes)} lives of clients ended by themselves, and others took their places:")
        lines += [f"  {count} x {crash}" for crash, count in Counter(crashes).most_common()]
    for line, count in complaints.items():
        lines.append(f"the broker said {count} x {line}")
    for excuse, count in Counter(excuse for _, excuse in excused).items():
        lines.append(f"{count} x {excuse.kind} excused: {excuse.client}: {excuse.why}")
    for kind, count in counted(findings).items():
        lines.append(f"{kind} x {count}: {KINDS[kind]}")
        for finding in [finding for finding in findings if finding.kind == kind][:SHOWN]:
            client = f" [{finding.client}]" if finding.client else ""
            lines.append(f"  {finding.text}{client} {json.dumps(finding.evidence)[:600]}")
    lines.append(f"{len(findings)} findings" if findings else "nothing found")
    return "\n".join(lines)


def write(findings: list[Finding], path: Path) -> None:
    path.write_text("".join(json.dumps(asdict(finding)) + "\n" for finding in findings))


def json_line(
    seed: int, seconds: float, findings: Sequence[tuple[str, str]], counts: Mapping[str, int]
) -> str:
    """Return a run as a line of JSON, for `soak.night`. Each finding is its kind and a text."""
    return json.dumps({"seed": seed, "seconds": seconds, "findings": findings, "counts": counts})
