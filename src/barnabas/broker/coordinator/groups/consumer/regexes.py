"""Subscriptions by regular expression, resolved by the coordinator (KIP-848), in the syntax of RE2.

An expression has to match a whole topic name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of, shown
from barnabas.broker.config.patterns import compiled
from barnabas.broker.coordinator.pattern_search import CostlyPatternError, PatternSearch

logger = logger_of(__name__)

#: how many names are looked at before the event loop serves others
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
    search: PatternSearch,
    regexes: Mapping[str, frozenset[str]],
    names: Collection[str],
    may_see: Callable[[str], bool],
) -> dict[str, frozenset[str]]:
    """The topics of `names` that each expression matches, without those that `may_see` hides.

    Args:
        regexes: the expressions, and their topics until now: an expression that is too costly keeps them.
    """
    found = {}
    names = list(names)
    for regex, before in regexes.items():
        try:
            matching = await search.find(regex, names)
        except CostlyPatternError as error:
            logger.warning("the regular expression %s is not looked up: %s", shown(regex), error)
            found[regex] = before
            continue
        visible: list[str] = []
        for start in range(0, len(matching), _NAMES_A_TURN):
            visible += filter(may_see, matching[start : start + _NAMES_A_TURN])
            await asyncio.sleep(0)
        found[regex] = frozenset(visible)
    return found
