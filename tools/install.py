"""Installs the packages of a lock file by several pip processes at once.

    python -m tools.install LOCK PIP...    PIP is the command, up to its option -r

One pip process downloads, checks and unpacks one package after the other. So it waits for the network while
the processors have nothing to do, and the other way round. The packages of a lock file have hashes and need
no others (``--require-hashes --no-deps``), so processes that install different packages do not meet.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.lock import pins

#: one waits for the network while two cores unpack
_PROCESSES = 3


def parts(text: str, count: int = _PROCESSES) -> list[str]:
    """Divide the text of a lock file into those of `count` lock files, for one process each."""
    entries = list(pins(text).values())
    return ["".join(entries[number::count]) for number in range(count)]


def install(lock: Path, pip: Sequence[str]) -> int:
    """Install the packages of `lock` with the command `pip`.

    Returns: the exit code of a process that failed, else 0.
    """
    with tempfile.TemporaryDirectory() as folder:
        processes = []
        for number, text in enumerate(parts(lock.read_text())):
            part = Path(folder, f"{lock.stem}-{number}.lock")
            part.write_text(text)
            processes.append(subprocess.Popen([*pip, "-r", str(part)]))
        return max(abs(process.wait()) for process in processes)


if __name__ == "__main__":
    sys.exit(install(Path(sys.argv[1]), sys.argv[2:]))
