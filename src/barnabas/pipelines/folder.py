"""A pipeline's own folder: its checkpoints, its status, Spark's log, and a lock while it runs.

By default the folder is ``.barnabas/<pipeline>`` beside the pipeline file. So the pipeline continues from its
checkpoints, whatever the current folder is.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.base.system import locks
from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.model import Pipeline


class Folder:
    """The folder of one pipeline, which contains its checkpoints, status, log and lock."""

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()
        self.status = self.path / "status.json"
        self.log = self.path / "spark.log"
        self.checkpoints = self.path / "checkpoints"
        self._lock = self.path / "lock"

    @classmethod
    def of(cls, pipeline: Pipeline, chosen: Path | None) -> Folder:
        return cls(chosen or pipeline.path.absolute().parent / ".barnabas" / pipeline.name)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Create the folder, and hold its lock until the context or the process ends.

        Raises:
            PipelineError: another process holds the lock.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self._lock.open("w") as file:
            try:
                locks.lock(file.fileno())
            except BlockingIOError:
                raise PipelineError(
                    f"{self.path} is in use: the pipeline runs already; stop it, or choose another --folder"
                ) from None
            yield

    @property
    def in_use(self) -> bool:
        """Whether a running pipeline holds the lock."""
        try:
            with self._lock.open() as file:
                return locks.is_locked(file.fileno())
        except FileNotFoundError:
            return False
