"""Regular expressions from clients, in the syntax of RE2.

A match takes time linear in the length of the text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from barnabas.base.text import shown

#: the longest expression, in characters: to compile takes time, too
MAX_LENGTH = 4096
#: the most memory of one compiled expression, in bytes
_MAX_MEMORY = 1 << 20


@lru_cache(32)
def compiled(pattern: str) -> Any:
    """Compile `pattern` with RE2.

    The method ``fullmatch`` of the result says whether it matches a whole text.

    Raises:
        ValueError: the pattern is invalid or too large; the text has the reason in one line.
    """
    import re2  # few brokers need it: it is not loaded at start

    if len(pattern) > MAX_LENGTH:
        raise ValueError(f"it has {len(pattern)} characters, {MAX_LENGTH} are allowed")
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise ValueError(shown(text)) from None
