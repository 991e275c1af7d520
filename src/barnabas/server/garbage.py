"""How Python's garbage collector is set for a process that is a broker."""

from __future__ import annotations

import gc

#: full collections are this many times as many young ones apart; Python's own setting is 10
_FULL_COLLECTION_INTERVAL = 100


def keep_collections_short() -> None:
    """Call once the broker serves. The collector stops the whole process while it looks at every object.

    What has been made by now stays, so it is not looked at again. Nearly all else is freed without the
    collector, which full collections are needed for only where cycles have become old.
    """
    gc.collect()
    gc.freeze()
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, _FULL_COLLECTION_INTERVAL)
