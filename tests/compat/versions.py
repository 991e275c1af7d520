"""Sources of earlier versions, from the history of this repository."""

from __future__ import annotations

import io
import subprocess
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def checkout(version: str, folder: Path) -> Path:
    """Write the sources of a version into `folder`, and return the folder to import them from.

    Skip the test if the history does not reach back to the version.
    """
    try:
        archive = _git("archive", version, "src")
    except (OSError, subprocess.CalledProcessError):
        pytest.skip(f"the history does not reach back to {version}")
    with tarfile.open(fileobj=io.BytesIO(archive)) as sources:
        sources.extractall(folder, filter="data")
    return folder / "src"


def last_release(otherwise: str) -> str:
    """Return the newest tag of the history; `otherwise`, a commit, while there is no tag."""
    try:
        return _git("describe", "--tags", "--abbrev=0").decode().strip()
    except (OSError, subprocess.CalledProcessError):
        return otherwise


def _git(*arguments: str) -> bytes:
    return subprocess.run(["git", "-C", ROOT, *arguments], check=True, capture_output=True).stdout
