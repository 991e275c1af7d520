"""What Spark forks its Python workers from, with their modules imported (``spark.python.daemon.module``).

Spark's own daemon imports next to nothing, so each worker that it forks spends half a second of CPU time on
the same imports. Here they are done once. They are frozen, too: see `barnabas.spark.worker_heap`.

Called by Spark as ``python -m barnabas.spark.worker_daemon WORKER-MODULE``. It must not write to stdout,
where Spark reads the port from.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import sys

from pyspark import daemon

_READS = "barnabas.spark.stream_reader"
_WRITES = "barnabas.spark.writer"

#: What the data source takes in a worker of each kind. Others only ask for its name and schema.
_OURS = {
    "pyspark.worker": (_READS, _WRITES),
    "pyspark.sql.streaming.python_streaming_source_runner": (_READS,),
    "pyspark.sql.worker.plan_data_source_read": (_READS,),
    "pyspark.sql.worker.write_into_data_source": (_WRITES,),
    "pyspark.sql.worker.python_streaming_sink_runner": (_WRITES,),
}


def import_for(worker: str) -> None:
    """Import what a worker of this kind will; one that cannot be imported the worker itself complains of."""
    for name in (worker, *_OURS.get(worker, ())):
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
