"""Log files into their topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.client.ship import Progress, Shipper


@dataclass(frozen=True)
class Shipped:
    """What went into one topic. A record may be several lines: a stack trace belongs to its first."""

    files: int
    lines: int
    records: int


def ship(
    bootstrap: str,
    files: Mapping[str, list[Path]],
    state: Path,
    on_progress: Callable[[int, int], None],
) -> dict[str, Shipped]:
    """Ship every topic's `files` to their end; `on_progress` is told bytes read and bytes in all.

    Raises:
        ClientError: a file cannot be read, or the broker refuses its records.
    """
    total = sum(path.stat().st_size for paths in files.values() for path in paths)
    done = 0
    shipped = {}
    for topic, paths in files.items():
        shipped[topic] = Shipped(0, 0, 0)
        if not paths:
            continue
        before = done

        def report(progress: Progress, before: int = before) -> None:
            on_progress(before + progress.bytes_read, total)

        progress = Shipper(bootstrap, topic, paths, state_dir=state, on_progress=report).run()
        done += progress.bytes_read
        shipped[topic] = Shipped(len(paths), progress.lines, progress.acknowledged)
    return shipped
