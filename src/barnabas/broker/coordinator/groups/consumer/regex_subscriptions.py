"""The regular expressions that groups subscribe by, and the topics that they match.

They are resolved in the background when an expression or a topic is new, and periodically; all those of a
group at once, so that one rebalance is enough.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Set
from enum import Enum
from functools import partial

from barnabas.base.text import logger_of
from barnabas.broker.coordinator.backoff import backoff_ms
from barnabas.broker.coordinator.groups.consumer import regexes
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.rounds import Rounds
from barnabas.broker.coordinator.groups.consumer.topics import Topics
from barnabas.broker.coordinator.pattern_search import PatternSearch
from barnabas.broker.view import BrokerView

logger = logger_of(__name__)

_LEAST_INTERVAL_MS = 10_000


class RegexChange(Enum):
    """The effect of a heartbeat on a member's subscription by regular expression."""

    NONE = "none"
    #: its topics are not known yet; there will be a new epoch when they are
    PENDING = "pending"
    RESOLVED = "resolved"

    @property
    def is_changed(self) -> bool:
        return self is not RegexChange.NONE

    @property
    def is_resolved(self) -> bool:
        return self is RegexChange.RESOLVED


class RegexSubscriptions:
    """The regular expressions of one shard's groups."""

    def __init__(
        self,
        view: BrokerView,
        topics: Topics,
        rounds: Rounds,
        search: PatternSearch,
        resolved: Callable[[str, Mapping[str, frozenset[str]]], None],
    ) -> None:
        """`resolved` takes a group id and what was found, and has `store` called in the group's turn."""
        self._view = view
        self._topics = topics
        self._rounds = rounds
        self._search = search
        self._resolved = resolved
        self._under_way: dict[str, asyncio.Task[None]] = {}
        #: by group: the topics among which its expressions were last looked up
        self._looked_through: dict[str, Collection[str]] = {}
        #: by group: how often in a row what was found could not be stored, and when to look again, in ms
        self._failed: dict[str, tuple[int, int]] = {}

    def change(self, draft: GroupDraft, old: str, new: str) -> RegexChange:
        """A member subscribes by another expression; `draft` has the new subscription already.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        if new == old:
            return RegexChange.NONE
        group = draft.group
        if old and not group.subscribers(old) and old in group.regexes:
            draft.remove_regex(old)
        if not new:
            return RegexChange.RESOLVED
        if group.subscribers(new) == 1:
            regexes.check(new)
        return RegexChange.RESOLVED if new in group.regexes else RegexChange.PENDING

    def refresh(self, group: ConsumerGroup, may_see: Callable[[str], bool]) -> None:
        """Look the group's expressions up, if it is time to, among the topics that who asks `may_see`."""
        if group.group_id in self._under_way:
            return
        wanted = group.subscribed_regexes()
        if not wanted or not self._is_due(group, wanted):
            return
        resolved = group.regexes
        known = {regex: resolved[regex].topics if regex in resolved else frozenset[str]() for regex in wanted}
        task = asyncio.get_running_loop().create_task(
            self._look_up(group.group_id, known, self._topics.names, may_see)
        )
        self._under_way[group.group_id] = task
        task.add_done_callback(partial(self._done, group.group_id))

    def store(self, group: ConsumerGroup, found: Mapping[str, frozenset[str]]) -> GroupDraft:
        """What is to be stored of the topics that were found."""
        draft = GroupDraft(group)
        subscribed = group.subscribed_regexes()
        has_changed = False
        for regex, topics in found.items():
            if regex in subscribed:
                before = group.regexes.get(regex)
                has_changed |= topics != (before.topics if before else frozenset())
                draft.put_regex(regex, topics, self._view.clock.now_ms())
        if has_changed or self._rounds.is_outdated(draft.group):
            self._rounds.raise_epoch(draft)
        return draft

    def stored(self, group_id: str) -> None:
        """The resolved topics are stored."""
        self._failed.pop(group_id, None)

    def failed(self, group_id: str) -> None:
        """The topics could not be resolved or stored: a later heartbeat resolves them again."""
        failures = self._failed.get(group_id, (0, 0))[0] + 1
        self._failed[group_id] = failures, self._view.clock.now_ms() + backoff_ms(failures)

    def stop(self) -> None:
        for task in self._under_way.values():
            task.cancel()

    def forget(self, group_id: str) -> None:
        """The group was deleted."""
        self._looked_through.pop(group_id, None)
        self._failed.pop(group_id, None)

    def _is_due(self, group: ConsumerGroup, wanted: Set[str]) -> bool:
        if self._view.clock.now_ms() < self._failed.get(group.group_id, (0, 0))[1]:
            return False
        last_ms = max((resolved.resolved_ms for resolved in group.regexes.values()), default=None)
        if last_ms is None:
            return True
        age_ms = self._view.clock.now_ms() - last_ms
        if age_ms <= _LEAST_INTERVAL_MS:
            return False
        if (
            wanted != group.regexes.keys()
            or age_ms > self._view.config.group_consumer_regex_refresh_interval_ms
        ):
            return True
        seen, names = self._looked_through.get(group.group_id), self._topics.names
        if seen is names:
            return False
        if seen is None or not {*names} <= {*seen}:
            return True
        self._looked_through[group.group_id] = names  # other changes of topics: no need to compare again
        return False

    async def _look_up(
        self,
        group_id: str,
        wanted: Mapping[str, frozenset[str]],
        names: Collection[str],
        may_see: Callable[[str], bool],
    ) -> None:
        found = await regexes.resolve(self._search, wanted, names, may_see)
        self._looked_through[group_id] = names
        self._resolved(group_id, found)

    def _done(self, group_id: str, task: asyncio.Task[None]) -> None:
        self._under_way.pop(group_id, None)
        if not task.cancelled() and (error := task.exception()) is not None:
            is_news = group_id not in self._failed
            self.failed(group_id)
            if is_news:
                logger.error("group %s: its regular expressions cannot be resolved", group_id, exc_info=error)
