"""Reads a pipeline file, in Python or SQL."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from barnabas.pipelines.errors import PipelineError
from barnabas.pipelines.model import Pipeline
from barnabas.pipelines.parameters import Parameters
from barnabas.pipelines.python_file import read_python
from barnabas.pipelines.sql_file import read_sql

_READERS = {".py": read_python, ".sql": read_sql}


def read_pipeline(path: Path, parameters: Mapping[str, str] | None = None) -> Pipeline:
    """Read the pipeline file `path`, and check it as far as possible without Spark.

    Args:
        parameters: values of the file's parameters, by name.

    Raises:
        PipelineError: the file cannot be read, or a declaration is not allowed; the text has the line.
    """
    reader = _READERS.get(path.suffix)
    if reader is None:
        raise PipelineError(f"{path}: a pipeline is a file that ends in .py or .sql")
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise PipelineError(f"{path}: {why}") from None
    made = reader(path, text, Parameters(parameters or {}))
    if made.complete:
        made.check()
    return made
