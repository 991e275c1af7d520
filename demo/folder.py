"""The demo's own folder. Each start empties it, but never a folder with other files."""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas.base.errors import BarnabasError

_MARK = ".barnabas-demo"


class FolderError(BarnabasError):
    """The folder has files that are not the demo's."""


def shorten(path: Path) -> str:
    """Return a path as a user would write it: relative, if it is below the working directory."""
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)


def prepare(folder: Path) -> Path:
    """Return an empty folder with the demo's mark. Files of an earlier run are removed.

    Raises:
        FolderError: the folder exists, is not empty, and does not have the demo's mark.
    """
    folder = folder.resolve()
    if folder.exists() and any(folder.iterdir()) and not (folder / _MARK).exists():
        raise FolderError(f"{folder} holds files that are not the demo's: choose another with --folder")
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _MARK).touch()
    return folder
