"""Keeps the garbage collector of Spark's Python workers away from imported modules.

After each use a worker collects garbage (pyspark.daemon calls `gc.collect`), and the next task waits for it.
The 90,000 objects of the imported modules take 45 ms of CPU time, and a task of a few records takes 4. The
collector ignores frozen objects. They are still freed when nothing refers to them; only cycles among them
stay.
"""

from __future__ import annotations

import gc
import sys

#: The daemons whose workers collect garbage after each task; only those are frozen.
_DAEMONS = ("pyspark.daemon", "barnabas.spark.worker_daemon")

#: At the second use all modules are imported, and the garbage of the first is collected.
_SETTLED = 2

_uses = 0


def count_use() -> None:
    """Count a use of this process, a task, a plan or a commit; the second one freezes all objects."""
    global _uses
    _uses += 1
    if _uses == _SETTLED and _is_worker():
        gc.freeze()


def _is_worker() -> bool:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    return getattr(spec, "name", None) in _DAEMONS
