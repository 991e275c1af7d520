"""Initializes and deletes the states of share partitions at the share coordinator (KIP-932).

At most one task at a time sends requests about a group to the share coordinator (`ShareStates.exclusive`).
So a state cannot be deleted while another task initializes it. The group coordinator repeats an
initialization until it succeeds (KAFKA-19204). The group's record has the partitions that are not initialized
yet. So the next coordinator of the group continues with them.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import islice

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import Offset
from barnabas.broker.coordinator.backoff import LimitedWarnings, backoff_ms
from barnabas.broker.coordinator.groups.share.draft import ShareGroupDraft
from barnabas.broker.coordinator.groups.share.group import ShareGroup
from barnabas.broker.coordinator.groups.share.initialization import keys, topics_of
from barnabas.broker.coordinator.share_state.persister import (
    CoordinatorPosition,
    SharePartitionKey,
    SharePersister,
    ShareState,
)
from barnabas.broker.view import BrokerView

logger = logger_of(__name__)

#: in place of a start offset: the partition's leader chooses one by share.auto.offset.reset
UNINITIALIZED = -1
#: the most concurrent requests to the share coordinator
_AT_ONCE = 100

#: the error of each share partition whose request failed
Failures = dict[SharePartitionKey, KafkaError]


class ShareStates:
    """The states of the partitions of one shard's share groups.

    Args:
        view: has the broker's image of the metadata.
        persister: sends the requests to the share coordinator.
        find: called with a group id; returns the share group, or None if there is none.
        change: called with a group id and a function that changes a draft of this group. `change` must call
            this function with a draft under the group's lock, and store the draft's records. If that fails,
            it raises KafkaError.
        began: called with a draft in which partitions have become initialized. This function must raise the
            group epoch.
        raise_epoch: called with a draft and an epoch; must raise the group epoch, above this one at least.
        position: returns the position of the shard's log. It raises KafkaError if this broker does not lead
            the shard's partition any more.
    """

    def __init__(
        self,
        view: BrokerView,
        persister: SharePersister,
        find: Callable[[str], ShareGroup | None],
        change: Callable[[str, Callable[[ShareGroupDraft], None]], Awaitable[None]],
        began: Callable[[ShareGroupDraft], None],
        raise_epoch: Callable[[ShareGroupDraft, int], None],
        position: Callable[[], CoordinatorPosition],
    ) -> None:
        self._view = view
        self._persister = persister
        self._find = find
        self._change = change
        self._began = began
        self._raise_epoch = raise_epoch
        self._position = position
        self._locks: dict[str, asyncio.Lock] = {}
        #: by group: the number of tasks that hold the lock, or wait for it
        self._lock_users: Counter[str] = Counter()
        self._under_way: dict[str, asyncio.Task[None]] = {}
        #: by group with a running initialization: the start offset of each partition that waited for it
        self._starts: dict[str, dict[SharePartitionKey, Offset]] = {}
        self._warnings = LimitedWarnings(logger)

    def begin(self, group_id: str) -> None:
        """Start a task that initializes the group's initializing partitions, unless one is running."""
        if group_id in self._under_way:
            return
        work = self._initialize_group(group_id)
        self._under_way[group_id] = start_task(work, f"initialization of share group {group_id}")

    def stop(self) -> None:
        """Cancel all initializations."""
        for task in self._under_way.values():
            task.cancel()

    @asynccontextmanager
    async def exclusive(self, group_id: str, max_wait: float | None = None) -> AsyncIterator[None]:
        """Return a context manager for requests about the group to the share coordinator.

        Only one task at a time is in such a context for the group. A task that enters it waits until the
        other task has left, at most `max_wait` seconds; None for any time.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, the wait took too long.
        """
        lock = self._locks.setdefault(group_id, asyncio.Lock())
        self._lock_users[group_id] += 1
        try:
            try:
                async with asyncio.timeout(max_wait):
                    await lock.acquire()
            except TimeoutError:
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE, "another request about the group is in progress"
                ) from None
            try:
                yield
            finally:
                lock.release()
        finally:
            self._lock_users[group_id] -= 1
            if not self._lock_users[group_id]:
                del self._lock_users[group_id], self._locks[group_id]

    async def initialize(self, offsets: Mapping[SharePartitionKey, Offset], state_epoch: int) -> Failures:
        """Initialize the states of partitions. Return an error for each partition that failed.

        The caller must be in the context of `exclusive`. An earlier group of the same name may have left
        states with higher state epochs. Then the group epoch rises above all of them at once, and the new
        states of these partitions get the new group epoch.

        Args:
            offsets: the partitions of one group, with the new start offsets.
            state_epoch: the new state epoch.
        """
        failures = await self._each(
            offsets, lambda key: self._persister.initialize(key, state_epoch, offsets[key], self._position())
        )
        fenced = {
            key: offsets[key] for key, error in failures.items() if error.code is ErrorCode.FENCED_STATE_EPOCH
        }
        for key in fenced:
            del failures[key]
        return failures | await self._replace(fenced)

    async def delete(self, deleted: Collection[SharePartitionKey]) -> Failures:
        """Delete the states of partitions. Return an error for each partition that failed.

        The caller must be in the context of `exclusive`. The group no longer knows the topics of these
        partitions. So an initialization that waits for its next attempt must choose new start offsets.
        """
        for key in deleted:
            self._starts.get(key.group, {}).pop(key, None)
        return await self._each(deleted, self._delete)

    # --- inside ---

    async def _initialize_group(self, group_id: str) -> None:
        try:
            await self._initialize_waiting(group_id)
        except KafkaError:
            pass  # the runtime has logged it, and the next heartbeat begins again
        finally:
            del self._under_way[group_id]
            self._starts.pop(group_id, None)

    async def _initialize_waiting(self, group_id: str) -> None:
        failures = 0
        failed: Failures = {}
        starts = self._starts.setdefault(group_id, {})
        while True:
            async with self.exclusive(group_id):
                group = self._find(group_id)
                if group is None:
                    return
                images = self._view.image.topic_names
                waiting = [
                    key for key in keys(group_id, group.partitions.initializing) if key.topic_id in images
                ]
                if not waiting:
                    return
                # A partition that a known topic gets begins at 0, so that no record is lost (KAFKA-20742).
                known = {key.topic_id for key in starts} | group.partitions.initialized.keys()
                for key in waiting:
                    starts.setdefault(key, 0 if key.topic_id in known else UNINITIALIZED)
                # Those that have failed come last, so that they hold up no others.
                waiting.sort(key=failed.__contains__)
                some = waiting[:_AT_ONCE]
                failed = await self.initialize({key: starts[key] for key in some}, group.epoch)
                initialized = [key for key in some if key not in failed]
                if initialized:
                    await self._change(group_id, partial(self._note_initialized, initialized))
            if failed:
                failures += 1
                error = next(iter(failed.values()))
                self._warnings.warn(
                    error.code,
                    "share group %s: %d partitions are not initialized yet: %s",
                    group_id,
                    len(failed),
                    error,
                )
                await asyncio.sleep(backoff_ms(failures) / 1000)

    def _note_initialized(self, initialized: Iterable[SharePartitionKey], draft: ShareGroupDraft) -> None:
        partitions = draft.group.partitions
        # A topic that was deleted meanwhile is not initializing any more.
        there = [
            key
            for key in initialized
            if (topic := partitions.initializing.get(key.topic_id)) is not None
            and key.partition in topic.partitions
        ]
        if there:
            draft.put_partitions(partitions.with_initialized(topics_of(there, partitions.names())))
            self._began(draft)

    async def _replace(self, offsets: Mapping[SharePartitionKey, Offset]) -> Failures:
        """Initialize partitions again whose initialization was fenced, in a higher epoch of the group.

        An earlier group of this name has left their states, or another broker coordinates the group now. Only
        the coordinator can commit the higher epoch. So a former one replaces no state of its successor.
        """
        left: dict[SharePartitionKey, ShareState] = {}

        async def read(key: SharePartitionKey) -> None:
            left[key] = await self._persister.summary(key)

        failures = await self._each(offsets, read)
        if not left:
            return failures
        highest = max(state.state_epoch for state in left.values())
        try:
            epoch = await self._raised_epoch(next(iter(left)).group, highest)
        except KafkaError as error:
            return failures | dict.fromkeys(left, error)
        return failures | await self._each(
            left,
            lambda key: self._persister.initialize(
                key, epoch, offsets[key], self._position(), left[key].initialized_at
            ),
        )

    async def _delete(self, key: SharePartitionKey) -> None:
        try:
            await self._persister.delete(key, self._position())
        except KafkaError as error:
            if error.code is not ErrorCode.FENCED_STATE_EPOCH:
                raise
            raise KafkaError(ErrorCode.NOT_COORDINATOR, error.message) from error

    async def _raised_epoch(self, group_id: str, above: int) -> int:
        """Raise the group epoch above `above` at least, and return it when it is committed."""
        epoch = above

        def change(draft: ShareGroupDraft) -> None:
            nonlocal epoch
            self._raise_epoch(draft, above)
            epoch = draft.group.epoch

        await self._change(group_id, change)
        return epoch

    async def _each(
        self,
        keys: Iterable[SharePartitionKey],
        ask: Callable[[SharePartitionKey], Awaitable[None]],
    ) -> Failures:
        failures: Failures = {}

        async def attempt(key: SharePartitionKey) -> None:
            try:
                await ask(key)
            except KafkaError as error:
                failures[key] = error

        left = iter(keys)
        while some := list(islice(left, _AT_ONCE)):
            await asyncio.gather(*map(attempt, some))
        return failures
