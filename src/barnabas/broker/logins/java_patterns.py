"""Regular expressions of Kafka's settings, which mean what they mean in Java.

There ``\\w``, ``\\d``, ``\\s``, ``\\b`` and ``(?i)`` know ASCII only, and ``.`` is no end of a line, of which
Unicode has five. A name that a rule lets through here must get through there as well.
"""

from __future__ import annotations

import re

#: an escape, a class of characters, or a dot outside of both
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\.", re.DOTALL)
_DOT_IS_ALL = re.compile(r"\(\?[a-zA-Z]*s")


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile `pattern`. Raises re.error for what Python's regular expressions do not have."""
    compiled = re.compile(pattern, re.ASCII)
    if _DOT_IS_ALL.search(pattern):
        return compiled
    dotted = _PART.sub(lambda part: r"[^\n\r\x85\u2028\u2029]" if part[0] == "." else part[0], pattern)
    return re.compile(dotted, re.ASCII)
