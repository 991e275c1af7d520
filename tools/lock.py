"""Writes requirements/*.lock: the versions in constraints.txt, with the hashes of all their files.

    make lock

It needs uv (`pip install uv`), which reads the hashes from the package index. The files contain no address of
the index. Run it after each change of constraints.txt or of the dependencies in pyproject.toml, because `make
setup` installs only the packages in these files.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
LOCKS = ROOT / "requirements"
#: the least Python whose packages all have the pinned versions
PYTHON = "3.11.5"
#: names of `make setup`, and what `make compat` installs beside them
SETUP, BROWSER = ("spark", "dev"), ("browser",)

_PIN = re.compile(r"^(?=[A-Za-z0-9])", re.MULTILINE)


def pins(text: str) -> dict[str, str]:
    """Return the entries of a lock file by the canonical name of the package."""
    entries = (entry for entry in _PIN.split(text) if entry.strip())
    return {canonical(re.split(r"[=\s]", entry, maxsplit=1)[0]): entry for entry in entries}


def canonical(name: str) -> str:
    """Return the canonical name of a package, by which all tools compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def locked(source: Path, extras: Sequence[str]) -> dict[str, str]:
    """Resolve the requirements in a file. Return the lock entries by package."""
    command = [
        "uv",
        "pip",
        "compile",
        "--quiet",
        "--universal",
        "--generate-hashes",
        "--python-version",
        PYTHON,
    ]
    command += ["--no-header", "--no-annotate", "--no-emit-find-links", "--no-emit-index-url"]
    command += ["--constraints", str(ROOT / "constraints.txt"), str(source)]
    for extra in extras:
        command += ["--extra", extra]
    return pins(subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT).stdout)


def locks() -> Iterator[tuple[str, dict[str, str]]]:
    """Yield the name and the entries of each lock file."""
    with tempfile.TemporaryDirectory() as folder:
        build = Path(folder) / "build.in"
        build.write_text("setuptools>=77\n")  # as [build-system] of pyproject.toml
        yield "build", locked(build, ())
    project = ROOT / "pyproject.toml"
    setup = locked(project, SETUP)
    yield "dev", setup
    browser = locked(project, (*SETUP, *BROWSER))
    yield "browser", {name: entry for name, entry in browser.items() if name not in setup}


def main() -> None:
    if shutil.which("uv") is None:
        sys.exit("uv is not there: install it with `pip install uv`, and run this again")
    LOCKS.mkdir(exist_ok=True)
    for name, entries in locks():
        (LOCKS / f"{name}.lock").write_text("".join(entries[each] for each in sorted(entries)))


if __name__ == "__main__":
    main()
