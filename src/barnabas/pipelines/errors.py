"""What goes wrong in a pipeline, said in one line: where, what, and the cure."""

from __future__ import annotations

import re
import traceback
from dataclasses import dataclass

from barnabas.errors import BarnabasError

#: A line of Spark's wrapping, or Py4J's, in which an error names itself: ``barnabas.errors.ConfigError: ...``
_NAMED = re.compile(r"^\s*(?:Caused by: |: )?(?:[\w$]+\.)*\w+(?:Error|Exception): (.+)")
#: What goes before the words: the error's condition, which of a failed stream goes before that of its cause.
_CONDITION = re.compile(
    r"^(?:\[STREAM_FAILED\] )?(?:Query \[.*?\] terminated with exception: )?(?:\[[A-Z0-9_.]+\] )?"
)
_TAIL = re.compile(r"\s*(?:SQLSTATE: \w{5}.*|;)$")
_OUR_WORDS = "barnabas."


class PipelineError(BarnabasError):
    """A pipeline cannot be read or cannot go on; the text names the place in its file where there is one."""


@dataclass(frozen=True)
class Place:
    """A line of a pipeline file; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def explain(error: BaseException) -> str:
    """The one line of a Spark exception that says what is wrong, without Spark's pages around it.

    An error of ours wins wherever it is wrapped; then the innermost error that has a name; else line one.
    """
    lines = str(error).splitlines()
    named = [(line, match[1]) for line in lines if (match := _NAMED.match(line))]
    ours = [text for line, text in named if _OUR_WORDS in line.partition(":")[0]]
    found = ours[-1] if ours else named[-1][1] if named else lines[0] if lines else type(error).__name__
    return _TAIL.sub("", _CONDITION.sub("", found)).strip()


def place_in(error: BaseException, file: str, otherwise: Place) -> Place:
    """The last line of `file` that `error` came through."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return Place(otherwise.file, frames[-1].lineno or otherwise.line) if frames else otherwise
