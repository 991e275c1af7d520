"""Finds the groups of one type in a shard, and changes them under their locks."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.contract import Result, ShardContext
from barnabas.broker.coordinator.groups.modern.delayed_assignment import Change
from barnabas.broker.coordinator.groups.modern.draft import ModernGroupDraft
from barnabas.broker.coordinator.groups.modern.group import ModernGroup

G = TypeVar("G", bound=ModernGroup[Any])
D = TypeVar("D", bound=ModernGroupDraft[Any, Any])


class ModernGroups(Generic[G, D]):
    """Finds and changes the groups of one type in one shard.

    Args:
        context: the coordinator runtime's interface for the shard. It runs an operation under a group's lock,
            and appends the records.
        find: called with a group id; returns this group, of any type, or None if it does not exist.
        group_class: the class of these groups.
        draft_class: called with a group; returns a draft of it. The draft collects changes, and the records
            that store them.
        type_name: the name of the type in error messages.
    """

    def __init__(
        self,
        context: ShardContext[Any],
        find: Callable[[str], object],
        group_class: type[G],
        draft_class: Callable[[G], D],
        type_name: str,
    ) -> None:
        self._context = context
        self._find = find
        self._group_class = group_class
        self._draft_class = draft_class
        self._type_name = type_name
        #: the calls of `_change` that wait for their records
        self._changes: set[asyncio.Future[None]] = set()
        self._is_unloaded = False

    def unload(self) -> None:
        """Fail all changes that wait, with NOT_COORDINATOR: this broker no longer has the shard.

        The runtime drops their operations without a word.
        """
        self._is_unloaded = True
        for done in list(self._changes):
            _end(done, KafkaError(ErrorCode.NOT_COORDINATOR))

    def _group(self, group_id: str) -> G | None:
        """Return the group with this id; None if there is none of this type."""
        group = self._find(group_id)
        return group if isinstance(group, self._group_class) else None

    def _existing_group(self, group_id: str) -> G:
        """Return the group with this id.

        Raises:
            KafkaError: GROUP_ID_NOT_FOUND, no group of this type has the id.
        """
        group = self._find(group_id)
        if isinstance(group, self._group_class):
            return group
        reason = "not found" if group is None else f"is not a {self._type_name}"
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} {reason}.")

    def _under_lock(self, group_id: str, operation: Callable[[G], Result[None]]) -> None:
        """Start `operation` under the group's lock, and return at once.

        When the lock is free, the runtime calls `operation` with the group, and stores the records of its
        result. The runtime logs a failure. If no group of this type has the id at that time, `operation` is
        not called.
        """

        def run(_shard: Any) -> Result[None]:
            group = self._group(group_id)
            return Result() if group is None else operation(group)

        self._context.write(group_id, run)

    async def _change(self, group_id: str, change: Change[D]) -> None:
        """Apply `change` to a draft of the group under the group's lock, and store the draft.

        If the group no longer exists, do nothing.

        Raises:
            KafkaError: NOT_COORDINATOR, this broker no longer has the shard; the records cannot be stored; or
                the error of `change`, and nothing has changed.
        """
        if self._is_unloaded:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def run(_shard: Any) -> Result[None]:
            group = self._group(group_id)
            if group is None:
                _end(done)
                return Result()
            draft = self._draft_class(group)
            try:
                change(draft)
            except Exception as error:
                _end(done, error)
                return Result()

            def then(error: KafkaError | None) -> None:
                _end(done, error)
                if error is not None:
                    raise error

            return Result(records=draft.records, then=then)

        self._changes.add(done)
        done.add_done_callback(self._changes.discard)
        self._context.write(group_id, run)
        await done


def _end(done: asyncio.Future[None], error: Exception | None = None) -> None:
    """Give a future its result or its error, unless its task was cancelled or the shard was unloaded."""
    if done.done():
        return
    if error is None:
        done.set_result(None)
    else:
        done.set_exception(error)
