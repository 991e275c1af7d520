"""Removes checkpoints, so that a pipeline's queries begin again: `barnabas pipeline reset`.

The command removes only checkpoints, never rows that a sink has written.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlsplit

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.folder import Folder
from barnabas.pipelines.model import Pipeline
from barnabas.pipelines.sink_options import SinkOptions

#: Spark's log of what a stream has written to a folder of Parquet files
PARQUET_LOG = "_spark_metadata"


@dataclass(frozen=True)
class Checkpoint:
    """The checkpoint of a query.

    Attributes:
        batch: last finished micro-batch; None before the first.
        size: in bytes.
        consequence: what happens to the sink's rows when the query begins again.
        obstacle: reason why the query must not begin again yet; empty if it can.
    """

    query: str
    path: Path
    batch: int | None
    size: int
    consequence: str
    obstacle: str


def find_checkpoints(pipeline: Pipeline, folder: Folder, queries: Sequence[str] = ()) -> list[Checkpoint]:
    """Return the existing checkpoints of `queries`, by default of all queries of `pipeline`.

    The checkpoints are in `folder`, the pipeline's own folder, unless the pipeline's option checkpoints names
    another folder.

    Raises:
        PipelineError: a query does not exist, or the checkpoints are not in a local folder.
    """
    checkpoints = local_path(pipeline.options.checkpoints or str(folder.checkpoints))
    sinks = dict(_queries(pipeline, checkpoints))
    for name in queries:
        if name not in sinks:
            raise PipelineError(f"there is no query {name}: choose from {', '.join(sinks)}")
    if checkpoints is None:
        listed = ", ".join(f"{pipeline.options.checkpoints}/{name}" for name in queries or sinks)
        raise PipelineError(
            f"the checkpoints are not in a local folder: with your store's own tool remove {listed}"
        )
    return [
        _checkpoint(name, checkpoints / name, sinks[name])
        for name in queries or sinks
        if (checkpoints / name).exists()
    ]


def remove(checkpoints: Sequence[Checkpoint]) -> None:
    """Remove all checkpoints, or none if one has an obstacle. The pipeline must be stopped.

    Raises:
        PipelineError: a checkpoint has an obstacle, or cannot be removed. If it cannot be removed, the
            checkpoints before it are removed already.
    """
    for each in checkpoints:
        if each.obstacle:
            raise PipelineError(f"{each.query}: {each.obstacle}")
    for each in checkpoints:
        try:
            shutil.rmtree(each.path)
        except OSError as error:
            raise PipelineError(f"{each.path}: {error.strerror}; it is removed in part: try again") from None


def local_path(location: str) -> Path | None:
    """Return the local path of a folder, which is a path or a URI; None if the URI is not ``file:``."""
    parts = urlsplit(location)
    if parts.scheme in ("", "file"):
        return Path(unquote(parts.path) if parts.scheme else location)
    return None


def _queries(pipeline: Pipeline, checkpoints: Path | None) -> Iterator[tuple[str, SinkOptions | None]]:
    """Yield the name of each query of a pipeline, and the options of the query's sink.

    - A sink: its name and its options.
    - A source with dead letters: ``SOURCE.dead_letter`` and None.
    - A shared source: ``SOURCE.shared``, the query that writes all outputs of the source, and None. A source
      that is no longer shared also has this query while `checkpoints` has the query's checkpoint.

    `checkpoints` is the local folder of the checkpoints; None if they are not local.
    """
    for source in pipeline.sources:
        name = f"{source.name}.shared"
        if source.options.shared or (checkpoints is not None and (checkpoints / name).exists()):
            yield name, None
        if source.options.dead_letter:
            yield f"{source.name}.dead_letter", None
    for sink in pipeline.sinks:
        yield sink.name, sink.options


def _checkpoint(name: str, path: Path, sink: SinkOptions | None) -> Checkpoint:
    commits = path / "commits"
    numbers = (
        [int(each.name) for each in commits.iterdir() if each.name.isdecimal()] if commits.is_dir() else []
    )
    size = sum(each.stat().st_size for each in path.rglob("*") if each.is_file())
    obstacle = ""
    if sink is not None and sink.parquet:
        output = local_path(sink.parquet)
        if output is None or (output / PARQUET_LOG).exists():
            obstacle = used_folder_error(sink.parquet)
    return Checkpoint(name, path, max(numbers, default=None), size, _consequence(sink), obstacle)


def used_folder_error(folder: str) -> str:
    """Return the error text for a query that cannot begin again, because of its Parquet folder `folder`.

    An earlier stream has written to the folder, and the query's checkpoint is missing or shall be removed.
    """
    return (
        f"{folder} remembers the batches written there, and Spark would silently leave out as many of a "
        "query that begins again: delete the folder or move it away first"
    )


def _consequence(sink: SinkOptions | None) -> str:
    if sink is None or sink.topic:
        return "all records are written again, after those that are there"
    if sink.console:
        return "all rows are shown again"
    if sink.key:
        return "all rows are written again, and replace those of the same keys"
    if sink.parquet:
        return "all rows are written to a new folder"
    return "all rows are written again, beside those that are there"
