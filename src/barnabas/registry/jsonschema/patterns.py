"""Compiles the regular expressions of JSON Schemas, mostly with RE2, which matches in linear time."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_MEMORY = 8 << 20


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Any:
    """Return a compiled pattern, whose method `search` finds the pattern in a text.

    RE2 supports neither look-ahead nor back-references. For patterns with these, the result is from Python's
    `re`. The worker interrupts a search that takes too long. Raises re.error if `re` also rejects the
    pattern.
    """
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return re.compile(pattern)
