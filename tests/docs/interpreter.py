"""Runs blocks of Python in one namespace.

Each line of stdin is a block as a JSON string. The answer on stdout is JSON: null or the text of the error.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

#: Spark waits ten seconds for a worker that it starts; on a busy machine a block is tried again.
SLOW = "Python worker failed to connect back"
TRIES = 50


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")  # what blocks print goes to stderr
    os.dup2(2, 1)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for line in sys.stdin:
        text = json.loads(line)
        if "pyspark" in text:
            choose_python()
        for _ in range(TRIES):
            error = None
            try:
                if "awaitTermination" in text:
                    end_queries()
                exec(compile(text, "<block>", "exec"), namespace)
            except BaseException:
                error = traceback.format_exc()
            if error is None or SLOW not in error:
                break
        print(json.dumps(error), file=answers, flush=True)


def choose_python() -> None:
    """Let Spark's Python processes import PySpark with its bytecode, as those of pipelines do."""
    from barnabas.spark.worker_python import worker_python

    os.environ.setdefault("PYSPARK_PYTHON", worker_python(Path(os.environ["DOCS_STATE"])))


def end_queries() -> None:
    """Let a query that would run until stopped end when it has processed all present records."""
    from pyspark.sql.streaming.query import StreamingQuery

    def await_termination(query: StreamingQuery, timeout: int | None = None) -> None:
        query.processAllAvailable()
        query.stop()

    StreamingQuery.awaitTermination = await_termination


if __name__ == "__main__":
    main()
