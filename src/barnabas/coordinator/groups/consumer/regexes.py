"""Subscriptions by regular expression, resolved by the coordinator (KIP-848), in the syntax of RE2.

RE2 takes time linear in the text, whatever the expression. An expression has to match a whole topic name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from barnabas.config.patterns import compiled
from barnabas.errors import ErrorCode, KafkaError
from barnabas.text import shown

#: how many names are matched before the event loop serves others
_NAMES_A_TURN = 1000


def check(regex: str) -> None:
    """Raises KafkaError INVALID_REGULAR_EXPRESSION unless it can be compiled."""
    try:
        compiled(regex)
    except ValueError as error:
        raise KafkaError(
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            f"SubscribedTopicRegex `{shown(regex)}` is not a valid regular expression: {error}.",
        ) from None


async def resolve(
    regexes: Collection[str], names: Collection[str], may_see: Callable[[str], bool]
) -> dict[str, frozenset[str]]:
    """The topics of `names` that each expression matches, without those that `may_see` hides."""
    found = {}
    names = list(names)
    for regex in regexes:
        pattern = compiled(regex)
        matching: list[str] = []
        for start in range(0, len(names), _NAMES_A_TURN):
            matching += filter(may_see, filter(pattern.fullmatch, names[start : start + _NAMES_A_TURN]))
            await asyncio.sleep(0)
        found[regex] = frozenset(matching)
    return found
