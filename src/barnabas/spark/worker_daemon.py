"""A daemon that forks Spark's Python workers after the imports (``spark.python.daemon.module``).

Spark's own daemon imports few modules, so each worker spends 0.4 seconds of CPU time on the same imports.
This daemon does them once, and freezes the objects: see `barnabas.spark.worker_heap`.

Spark starts it as ``python -m barnabas.spark.worker_daemon pyspark.worker``, for the workers of tasks.
The Python processes in which Spark plans a query, for example the partitions of a Python data source, use
Spark's own daemon. The source of a streaming query has a process without a daemon.

This daemon must not write to stdout, because Spark reads the daemon's port from there.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

from pyspark import daemon

#: The modules that tasks of the data source import. PyArrow imports pandas, if it is there, when a process
#: makes its first array.
_OF_TASKS = ("barnabas.spark.stream_reader", "barnabas.spark.writer", "pandas")


def import_for(worker: str) -> None:
    """Import the module `worker`, and the modules that tasks need.

    Import errors are ignored, because the worker itself reports them later.
    """
    for name in (worker, *_OF_TASKS):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


def main() -> None:
    gc.disable()  # while modules are imported there is nothing to collect
    import_for(sys.argv[1])
    gc.freeze()
    gc.enable()
    daemon.manager()


if __name__ == "__main__":
    main()
