"""Finds the topics that match the regular expressions with which members subscribe (KIP-848).

Expressions have the syntax of RE2 and match whole topic names. The coordinator resolves them in the
background, when an expression or a topic is new, and periodically. It resolves all expressions of a group
together, so that one rebalance is enough.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Collection, Mapping, Set
from enum import Enum
from functools import partial

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import logger_of, shown
from barnabas.broker.config.patterns import compiled
from barnabas.broker.coordinator.backoff import backoff_ms
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.target_assignment import ConsumerTargetAssigner
from barnabas.broker.coordinator.groups.modern.topics import Topics
from barnabas.broker.coordinator.pattern_search import CostlyPatternError, PatternSearch
from barnabas.broker.view import BrokerView

logger = logger_of(__name__)

_MIN_INTERVAL_MS = 10_000


#: the names that are checked before the event loop serves others
_NAMES_A_TURN = 1000


def check(regex: str) -> None:
    """Raise KafkaError INVALID_REGULAR_EXPRESSION if the expression cannot be compiled."""
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
    """Return the topics in `names` that match each expression.

    Args:
        search: finds the matching names.
        regexes: each expression, with its current topics. If the search for an expression takes too long, the
            result has the current topics.
        names: the names of all topics.
        may_see: called with a matching topic's name; returns whether the client that caused the search may
            describe the topic. The result leaves out topics that the client may not describe.
    """
    found = {}
    names = list(names)
    for regex, before in regexes.items():
        try:
            matching = await search.find(regex, names)
        except CostlyPatternError as error:
            logger.warning("cannot find the topics of the regular expression %s: %s", shown(regex), error)
            found[regex] = before
            continue
        visible: list[str] = []
        for start in range(0, len(matching), _NAMES_A_TURN):
            visible += filter(may_see, matching[start : start + _NAMES_A_TURN])
            await asyncio.sleep(0)
        found[regex] = frozenset(visible)
    return found


class RegexChange(Enum):
    """The effect of a heartbeat on a member's subscription by regular expression."""

    NONE = "none"
    #: the topics of the new expression are not known yet; when they are found, the group epoch rises
    PENDING = "pending"
    RESOLVED = "resolved"

    @property
    def is_changed(self) -> bool:
        return self is not RegexChange.NONE

    @property
    def is_resolved(self) -> bool:
        return self is RegexChange.RESOLVED


class RegexSubscriptions:
    """Resolves the regular expressions of one shard's groups."""

    def __init__(
        self,
        view: BrokerView,
        topics: Topics,
        assigner: ConsumerTargetAssigner,
        search: PatternSearch,
        resolved: Callable[[str, Mapping[str, frozenset[str]]], None],
    ) -> None:
        """Create the subscriptions of one shard.

        Args:
            view: settings and clock of the broker.
            topics: the topics of the cluster.
            assigner: raises group epochs.
            search: finds topics by regular expressions.
            resolved: called with a group id and the found topics after a search. This function must call
                `store` under the group's lock, and then `stored` or `failed`.
        """
        self._view = view
        self._topics = topics
        self._assigner = assigner
        self._search = search
        self._resolved = resolved
        self._under_way: dict[str, asyncio.Task[None]] = {}
        #: by group: the names of all topics at the time of the last search
        self._searched: dict[str, Collection[str]] = {}
        #: by group: consecutive failures to store the found topics, and the monotonic time of the next search
        self._failed: dict[str, tuple[int, float]] = {}

    def change(self, draft: GroupDraft, old: str, new: str) -> RegexChange:
        """Handle a member's change of its expression from `old` to `new` (empty for none).

        `draft` must already have the new subscription. If no member uses `old` any more, remove the topics of
        `old` from the draft.

        Returns:
        NONE if nothing changed. PENDING if a search must first find the topics of `new`. RESOLVED if `new`
            is empty, or its topics are known.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION, `new` cannot be compiled.
        """
        if new == old:
            return RegexChange.NONE
        group = draft.group
        if old and not group.subscribers(old) and old in group.regexes:
            draft.remove_regex(old)
        if not new:
            return RegexChange.RESOLVED
        if group.subscribers(new) == 1:
            check(new)
        return RegexChange.RESOLVED if new in group.regexes else RegexChange.PENDING

    def refresh(self, group: ConsumerGroup, may_see: Callable[[str], bool]) -> None:
        """Start a search for the topics of the group's expressions in the background, if necessary.

        A search is necessary if, since the last one, a topic was created, an expression was added or removed,
        or ``group.consumer.regex.refresh.interval.ms`` has passed. Do nothing while a search runs for the
        group, shortly after the last one (`_MIN_INTERVAL_MS`), and during the pause after a failure.

        `may_see` is called with a topic's name. It returns whether the client of the present request may
        describe the topic. The search leaves out topics that the client may not describe.
        """
        if group.group_id in self._under_way:
            return
        wanted = group.subscribed_regexes()
        if not wanted or not self._is_due(group, wanted):
            return
        resolved = group.regexes
        known = {regex: resolved[regex].topics if regex in resolved else frozenset[str]() for regex in wanted}
        task = asyncio.get_running_loop().create_task(
            self._resolve(group.group_id, known, self._topics.names, may_see)
        )
        self._under_way[group.group_id] = task
        task.add_done_callback(partial(self._done, group.group_id))

    def store(self, group: ConsumerGroup, found: Mapping[str, frozenset[str]]) -> GroupDraft:
        """Return a draft that stores the found topics of the expressions that members still use.

        If the topics of an expression, or the metadata of subscribed topics, have changed, the draft also
        raises the group epoch.
        """
        draft = GroupDraft(group)
        subscribed = group.subscribed_regexes()
        has_changed = False
        for regex, topics in found.items():
            if regex in subscribed:
                before = group.regexes.get(regex)
                has_changed |= topics != (before.topics if before else frozenset())
                draft.put_regex(regex, topics, self._view.clock.now_ms())
        if has_changed or self._assigner.is_outdated(draft.group):
            self._assigner.raise_epoch(draft)
        return draft

    def stored(self, group_id: str) -> None:
        """Reset the number of failures of a group, because the found topics are stored."""
        self._failed.pop(group_id, None)

    def failed(self, group_id: str) -> None:
        """Count a failure to find or store topics. A heartbeat after a pause begins a new search."""
        self._searched.pop(group_id, None)
        failures = self._failed.get(group_id, (0, 0))[0] + 1
        self._failed[group_id] = failures, self._view.clock.monotonic() + backoff_ms(failures) / 1000

    def stop(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    def forget(self, group_id: str) -> None:
        """Remove all state of a deleted group, and cancel its search.

        The result must not go to a new group of this name: it depends on the permissions of a former client.
        """
        self._searched.pop(group_id, None)
        self._failed.pop(group_id, None)
        task = self._under_way.pop(group_id, None)
        if task is not None:
            task.cancel()

    def _is_due(self, group: ConsumerGroup, wanted: Set[str]) -> bool:
        clock = self._view.clock
        if clock.monotonic() < self._failed.get(group.group_id, (0, -math.inf))[1]:
            return False
        ages = [clock.now_ms() - resolved.resolved_ms for resolved in group.regexes.values()]
        # A time in the future is from before the clock was set back, perhaps by days.
        age_ms = min((age for age in ages if age >= 0), default=None)
        if age_ms is None:
            return True
        if age_ms <= _MIN_INTERVAL_MS:
            return False
        if (
            wanted != group.regexes.keys()
            or age_ms > self._view.config.group_consumer_regex_refresh_interval_ms
        ):
            return True
        seen, names = self._searched.get(group.group_id), self._topics.names
        if seen is names:
            return False
        if seen is None or not {*names} <= {*seen}:
            return True
        self._searched[group.group_id] = names  # only other changes of topics: no need to compare again
        return False

    async def _resolve(
        self,
        group_id: str,
        wanted: Mapping[str, frozenset[str]],
        names: Collection[str],
        may_see: Callable[[str], bool],
    ) -> None:
        found = await resolve(self._search, wanted, names, may_see)
        self._searched[group_id] = names
        self._resolved(group_id, found)

    def _done(self, group_id: str, task: asyncio.Task[None]) -> None:
        if self._under_way.get(group_id) is task:  # else the group was deleted meanwhile
            del self._under_way[group_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            is_news = group_id not in self._failed
            self.failed(group_id)
            if is_news:
                logger.error("group %s: its regular expressions cannot be resolved", group_id, exc_info=error)
