"""Regular expressions in JSON Schemas. RE2 matches them in linear time, if it supports them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_MEMORY = 8 << 20


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Any:
    """Return an object whose `search` tells whether the pattern occurs in a text.

    RE2 supports neither look-ahead nor back-references: Python's `re` matches those, and the worker
    interrupts it when it takes too long.
    """
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return re.compile(pattern)
