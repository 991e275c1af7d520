"""The garbage collector of Spark's Python workers, kept from what cannot be garbage.

After each use a worker collects garbage (pyspark.daemon calls `gc.collect`), and the next task waits for it.
What takes its time are the 90,000 objects of the imported modules: 45 ms of CPU time where a task of a few
records takes 4. Objects that are frozen are not looked at again. They are still freed when nothing refers to
them any more; only cycles among them would stay.
"""

from __future__ import annotations

import gc
import sys

#: Where a process was forked that collects garbage after each task: only there it is ours to freeze.
_DAEMONS = ("pyspark.daemon", "barnabas.spark.worker_daemon")

#: By the second use all that is needed is imported, and the garbage of the first is collected.
_SETTLED = 2

_uses = 0


def count_use() -> None:
    """Called where a worker begins a task, or plans or commits some.

    The second time, all objects that are there are frozen.
    """
    global _uses
    _uses += 1
    if _uses == _SETTLED and _is_worker():
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return getattr(spec, "name", None) in _DAEMONS
