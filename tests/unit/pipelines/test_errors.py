"""Spark's errors in one line. The texts are from Spark 4.3."""

from __future__ import annotations

import pytest

from barnabas.pipelines.errors import explain

SYNTAX = """
[PARSE_SYNTAX_ERROR] Syntax error at or near 'SELEC'. SQLSTATE: 42601 (line 1, pos 0)

== SQL ==
SELEC a FROM t
^^^
"""

COLUMN = """\
[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `nope` cannot be \
resolved. Did you mean one of the following? [`id`]. SQLSTATE: 42703; line 1 pos 0;
'Project [unresolvedalias(('nope + 1))]
+- Range (0, 3, step=1, splits=Some(2))
"""

IN_A_FUNCTION = """\
[STREAM_FAILED] Query [id = fd50, runId = 6843] terminated with exception: [PYTHON_EXCEPTION] An exception \
was thrown from the Python worker: Traceback (most recent call last):
  File "/home/ann/pipelines/orders.py", line 20, in price
    return str(d["p%d" % x])
               ~^^^^^^^^^^^
KeyError: 'p7'
 SQLSTATE: 38000 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = fd50, runId = 6843]
Current Committed Offsets: {}
"""

IN_A_LIBRARY = """\
An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/home/ann/pipelines/orders.py", line 3, in each
    {}["p7"]
  File "/home/ann/.venv/lib/python3.11/site-packages/pandas/core/base.py", line 99, in get
    raise KeyError(key)
%s

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "/home/ann/.venv/lib/python3.11/site-packages/pyspark/worker.py", line 9, in main
    process()
  File "/home/ann/pipelines/orders.py", line 8, in outer
    each()
%s
"""

OURS = """\
[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted. Caused by: \
Traceback (most recent call last):
  File "/x/site-packages/barnabas/spark/exactly_once.py", line 120, in write_once
    raise ReplayError(text)
barnabas.spark.sink_progress.ReplayError: task 0 was written with 3 rows and now has 4
"""


@pytest.mark.parametrize(
    ("text", "line"),
    [
        (SYNTAX, "Syntax error at or near 'SELEC'. (line 1, pos 0)"),
        (
            COLUMN,
            "A column, variable, or function parameter with name `nope` cannot be resolved. Did you mean one "
            "of the following? [`id`].",
        ),
        (IN_A_FUNCTION, "KeyError: 'p7' (/home/ann/pipelines/orders.py:20)"),
        (
            IN_A_LIBRARY % ("KeyError: 'a'", "ValueError: b: c"),
            "ValueError: b: c (/home/ann/pipelines/orders.py:8)",
        ),
        (
            IN_A_LIBRARY % ("KeyError: 'a'", "StopIteration"),
            "StopIteration (/home/ann/pipelines/orders.py:8)",
        ),
        (
            IN_A_LIBRARY
            % ("KeyError: 'a'", "pyspark.errors.exceptions.base.PySparkValueError: [X_Y] no such"),
            "no such (/home/ann/pipelines/orders.py:8)",
        ),
        (OURS, "task 0 was written with 3 rows and now has 4"),
        ("java.lang.RuntimeException: outer\nCaused by: java.io.IOException: disk is full", "disk is full"),
        ("\n\n", "Exception"),
    ],
)
def test_an_error_of_sparks_is_one_line(text: str, line: str) -> None:
    assert explain(Exception(text)) == line
