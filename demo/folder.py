"""The demo's own folder: emptied at each start, and never one that is somebody else's."""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.base.errors import BarnabasError

_MARK = ".barnabas-demo"


class FolderError(BarnabasError):
    """The folder holds things that are not the demo's."""


def shorten(path: Path) -> str:
    """A path as a person here would write it: from the working directory on when it lies below."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def prepare(folder: Path) -> Path:
    """An empty folder, marked as the demo's; what a former run left in it is removed.

    Raises:
        FolderError: it is there, not empty, and does not bear the demo's mark.
    """
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise FolderError(f"{folder} holds files that are not the demo's: choose another with --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    return folder
