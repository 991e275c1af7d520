"""Compiles the regular expressions in Kafka's settings, with the same meaning as in Java.

In Java ``\\w``, ``\\d``, ``\\s``, ``\\b`` and ``(?i)`` match ASCII only, and ``.`` matches none of Unicode's
five line ends. So an expression in a rule for user names must match the same names as in Apache Kafka.
"""

from __future__ import annotations

import re

#: an escape, a class of characters, or a dot outside of both
_PART = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\.", re.DOTALL)
_DOT_IS_ALL = re.compile(r"\(\?[a-zA-Z]*s")


def compile_java(pattern: str) -> re.Pattern[str]:
    """Compile `pattern` with Java's meaning. Raises re.error if the pattern is invalid for Python's `re`."""
    compiled = re.compile(pattern, re.ASCII)
    if _DOT_IS_ALL.search(pattern):
        return compiled
    dotted = _PART.sub(lambda part: r"[^\n\r\x85\u2028\u2029]" if part[0] == "." else part[0], pattern)
    return re.compile(dotted, re.ASCII)
