"""Regular expressions of JSON Schemas: by RE2, which takes linear time, where it can say them."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

_MEMORY = 8 << 20


@lru_cache(maxsize=1024)
def matcher(pattern: str) -> Any:
    """An object whose `search` says whether the pattern is found in a text.

    RE2 knows neither look-ahead nor back-references: those take Python's `re`, which a worker interrupts when
    it takes too long.
    """
    import re2

    options = re2.Options()
    options.max_mem = _MEMORY
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error:
        return re.compile(pattern)
