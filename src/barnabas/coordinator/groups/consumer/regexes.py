"""Subscriptions by regular expression, resolved by the coordinator (KIP-848), in the syntax of RE2.

RE2 takes time linear in the text, whatever the expression. An expression has to match a whole topic name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from functools import lru_cache
from typing import Any

from barnabas.errors import ErrorCode, KafkaError

#: how many names are looked at before others get their turn
_NAMES_A_TURN = 1000


def check(regex: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION unless it can be compiled."""
    import re2

    try:
        _compile(regex)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {text}.",
        ) from None


async def resolve(regexes: Collection[str], names: Collection[str]) -> dict[str, frozenset[str]]:
    """The topics of `names` that each expression matches."""
    found = {}
    names = list(names)
    for regex in regexes:
        pattern = _compile(regex)
        matching: list[str] = []
        for start in range(0, len(names), _NAMES_A_TURN):
            matching += filter(pattern.fullmatch, names[start : start + _NAMES_A_TURN])
            await asyncio.sleep(0)
        found[regex] = frozenset(matching)
    return found


@lru_cache(256)
def _compile(regex: str) -> Any:
    import re2  # few brokers need it: it is not loaded at start

    options = re2.Options()
    options.log_errors = False
    return re2.compile(regex, options)
