"""The progress bar of `barnabas ship`; a separate module, because rich takes 0.1 s to load."""

from __future__ import annotations

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, SpinnerColumn, TextColumn, TransferSpeedColumn
from rich.progress import Progress as RichProgress

from barnabas.client.ship import Progress


class ProgressBar:
    """Shows the progress of a shipper on stderr.

    It shows the bytes that are read, out of all bytes. It also shows how many records are acknowledged, and
    how many are sent but not acknowledged yet.
    """

    def __init__(self) -> None:
        self._bar = RichProgress(
            SpinnerColumn(),
            BarColumn(),
            DownloadColumn(),
            TransferSpeedColumn(),
            TextColumn("{task.fields[records]}"),
            console=Console(stderr=True),
            transient=True,
        )
        self._task = self._bar.add_task("ship", total=None, records="")

    def update(self, progress: Progress) -> None:
        waiting = progress.sent - progress.acknowledged
        records = f"{progress.acknowledged:,} records" + (f", {waiting:,} on their way" if waiting else "")
        self._bar.update(
            self._task,
            completed=progress.bytes_read,
            total=max(progress.bytes_total, 1),
            records=records,
        )

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()
