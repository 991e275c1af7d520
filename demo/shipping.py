"""Sends log files to their topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from barnabas.client.ship import Progress, Shipper


@dataclass(frozen=True)
class Shipped:
    """The records that went into one topic. A record can be several lines, for example a stack trace."""

    files: int
    lines: int
    records: int


def ship(
    bootstrap: str,
    files: Mapping[str, list[Path]],
    state: Path,
    on_progress: Callable[[int, int], None],
) -> dict[str, Shipped]:
    """Ship the `files` of every topic to their end.

    Args:
        on_progress: called with the number of bytes read, and the total.

    Raises:
        ClientError: a file cannot be read, or the broker rejects its records.
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
