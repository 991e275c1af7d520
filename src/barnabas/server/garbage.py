"""How Python's garbage collector is set for a process that is a broker."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

#: after so many full collections, each 70,000 new objects or more after the last, one looks at everything
_SHORT_ONES = 200


@contextmanager
def short_collections() -> Iterator[None]:
    """While entered, nearly all full collections look at new objects only: they take milliseconds.

    A collection stops the whole process. One that looks at everything takes a quarter of a second for 10,000
    topics, and the objects of one large request are enough to cause it. What has survived a full collection
    is left alone from then on. It is freed when nothing refers to it, like all else. Only old objects that
    refer to each other in a circle wait for the one collection in many that looks at everything.
    """
    short_ones = 0

    def collected(phase: str, info: dict[str, int]) -> None:
        nonlocal short_ones
        if phase != "stop" or info["generation"] != 2:
            return
        if short_ones < _SHORT_ONES:
            short_ones += 1
            gc.freeze()
        else:
            short_ones = 0
            gc.unfreeze()  # the next one looks at everything

    gc.collect()
    gc.freeze()
    gc.callbacks.append(collected)
    try:
        yield
    finally:
        gc.callbacks.remove(collected)
        gc.unfreeze()
