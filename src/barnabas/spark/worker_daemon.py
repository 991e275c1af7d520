"""A daemon that forks Spark's Python workers with their modules imported (``spark.python.daemon.module``).

Spark's own daemon imports next to nothing, so each worker that it forks spends 0.4 seconds of CPU time on the
same imports. This daemon does them once, and freezes them: see `barnabas.spark.worker_heap`.

Spark calls it as ``python -m barnabas.spark.worker_daemon pyspark.worker``, for the workers of tasks.
Planners keep the daemon of Spark's own. It must not write to stdout, where Spark reads the port from.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

from pyspark import daemon

#: The modules that tasks of the data source import.
_OURS = ("barnabas.spark.stream_reader", "barnabas.spark.writer")


def import_for(worker: str) -> None:
    """Import the modules of a worker, which itself reports one that cannot be imported."""
    for name in (worker, *_OURS):
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
