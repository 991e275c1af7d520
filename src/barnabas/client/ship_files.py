"""Finds the sources for the files that a user names."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.client.errors import ClientError
from barnabas.client.tail import is_rotated_name


class SourceFile(NamedTuple):
    """A file to follow, the name of its source, and the rotated files (`history`) that the user has named."""

    path: Path
    source: str
    history: tuple[Path, ...]


def find_sources(
    files: Iterable[str | Path] | Mapping[Path, str],
) -> list[SourceFile]:
    """Return the files to follow, each once, with its rotated files.

    `files` has paths of files and of rotated files. A rotated file, such as app.log.1, belongs to app.log if
    `files` has app.log too. A mapping gives the name of the source for each path. Without a mapping, the name
    is the absolute path.

    Raises:
        ClientError: there are no files, a file is missing, is a folder or cannot be read, or two files have
            the same source.
    """
    if isinstance(files, Mapping):
        paths = {Path(path).absolute(): source for path, source in files.items()}
    else:
        paths = {Path(path).absolute(): str(Path(path).absolute()) for path in files}
    if not paths:
        raise ClientError("no files to ship: name at least one")
    for path in paths:
        if path.is_dir():
            raise ClientError(f"{path} is a directory: name the files in it, for example {path}/*.log")
        if not os.access(path, os.R_OK):
            reason = "may not be read" if path.exists() else "does not exist"
            raise ClientError(f"{path} {reason}")
    bases = [path for path in paths if not any(is_rotated_name(path, other) for other in paths)]
    if len({paths[path] for path in bases}) < len(bases):
        raise ClientError(
            "two files have one source name: positions are kept by source, so give each its own"
        )
    return [
        SourceFile(base, paths[base], tuple(other for other in paths if is_rotated_name(other, base)))
        for base in bases
    ]
