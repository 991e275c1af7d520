"""Errors of a pipeline, in one line: the location, the error and a hint."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterable
from dataclasses import dataclass

from barnabas.base.errors import BarnabasError

#: A line in the text of a Spark or Py4J error that repeats another error with its class, such as
#: ``barnabas.base.errors.ConfigError: ...``
_NAMED = re.compile(r"^\s*(?:Caused by: |: )?((?:[\w$]+\.)*)(\w+(?:Error|Exception)): (.+)")
#: The prefix of an error's text: Spark's error condition, for a failed stream before that of the cause.
_CONDITION = re.compile(
    r"^(?:\[STREAM_FAILED\] )?(?:Query \[.*?\] terminated with exception: )?(?:\[[A-Z0-9_.]+\] )?"
)
#: The suffix of an error's text, of which only the position in a SQL statement is kept.
_TAIL = re.compile(r"\s*SQLSTATE: \w{5}(?: SQLSTATE: \w{5})*(?P<place> \(line \d+, pos \d+\))?.*$|\s*;$")
_OUR_WORDS = "barnabas."

#: A Python traceback as Spark repeats it: its beginning, its frames, and the line after them.
_TRACEBACK = "Traceback (most recent call last):"
_FRAME = re.compile(r'^\s+File "(.+)", line (\d+), in ')
_RAISED = re.compile(r"^((?:\w+\.)*)(\w+)(?:: (.*))?$")
#: Frames of Spark and other libraries, which do not help the author of the pipeline.
_LIBRARIES = re.compile(r"/(?:site|dist)-packages/|/python[\d.]*/lib/pyspark|pyspark\.zip/|/lib/python\d")
_SPARKS = ("pyspark.", "py4j.")


class PipelineError(BarnabasError):
    """A pipeline cannot be read or cannot continue.

    The text has the line of the pipeline file, if the error has one.
    """


@dataclass(frozen=True)
class Location:
    """A line of a pipeline file; lines count from 1."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def explain(error: BaseException) -> str:
    """Return one line that describes the error of a Spark exception.

    The text of the exception can contain several errors. The result is the first of these that exists:

    - the text of the last error of Barnabas;
    - the error of the last Python traceback: its type, its text, and the line of the user's code;
    - the text of the last error whose class is in the text, such as ``java.io.IOException: ...``;
    - the first line of the exception's text;
    - the name of the exception's class.
    """
    lines = [line for line in str(error).splitlines() if line.strip()]
    named = [match for line in lines if (match := _NAMED.match(line))]
    ours = [match[3] for match in named if _OUR_WORDS in match[1]]
    if ours:
        return _bare(ours[-1])
    raised = _raised(lines)
    if raised is not None:
        return raised
    return _bare(named[-1][3] if named else lines[0] if lines else type(error).__name__)


def _bare(text: str) -> str:
    return _TAIL.sub(lambda found: found["place"] or "", _CONDITION.sub("", text.strip())).strip()


def _raised(lines: Iterable[str]) -> str | None:
    """Return the error at the end of the last Python traceback in `lines`; None without a traceback.

    The result has the error's type, its text, and the line of the user's code.
    """
    last = None
    inside, location = False, ""
    for line in lines:
        if line.endswith(_TRACEBACK):
            inside, location = True, ""
        elif inside and (frame := _FRAME.match(line)):
            if not _LIBRARIES.search(frame[1]):
                location = f" ({frame[1]}:{frame[2]})"
        elif inside and not line[0].isspace():
            inside = False
            if raised := _RAISED.match(line):
                last = raised, location
    if last is None:
        return None
    (package, kind, words), location = last[0].groups(), last[1]
    if package.startswith(_SPARKS):
        return _bare(words or kind) + location
    return (f"{kind}: {_bare(words)}" if words else kind) + location


def location_in(error: BaseException, file: str, otherwise: Location) -> Location:
    """Return the innermost line of `file` in the traceback of `error`; `otherwise` if there is none."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == file]
    return Location(otherwise.file, frames[-1].lineno or otherwise.line) if frames else otherwise
