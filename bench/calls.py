"""Records the function calls of one request: their number, their files, and the changes of file."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any


class Way:
    """Records the Python functions that the code within the context calls, in order.

    Calls of C code and of the benchmark itself do not count.
    """

    def __init__(self) -> None:
        #: the caller's file, the file and name of the function
        self.calls: list[tuple[str, str, str]] = []

    def __enter__(self) -> None:
        sys.setprofile(self._note)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_back is not None:
            caller, code = frame.f_back.f_code, frame.f_code
            if "/bench/" not in code.co_filename:
                self.calls.append((caller.co_filename, code.co_filename, code.co_qualname))

    def __str__(self) -> str:
        files = {file for _, file, _ in self.calls}
        moves = sum(caller != file for caller, file, _ in self.calls)
        return f"{len(self.calls)} calls through {len(files)} files, {moves} of them from one file to another"

    def listing(self) -> str:
        """Return one line for each call."""
        return "\n".join(f"  {_short(file)}: {name}" for _, file, name in self.calls)


def _short(file: str) -> str:
    return file.rpartition("barnabas/")[2]
