"""Targets of large groups, computed beside the event loop and stored piece by piece.

Members that join together share a round, since it begins a moment after the first of them. A thread computes
the target. It is stored some members at a time, and its epoch last: a group whose coordinator dies in between
gets another target. Until then members keep to the epoch that they have. A member that moves meanwhile is
given partitions of its new target only if nobody owns them, as always.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TypeAlias

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.coordinator.groups.consumer.draft import GroupDraft
from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember, Partitions
from barnabas.broker.coordinator.groups.consumer.rounds import AssignmentInputs

logger = logger_of(__name__)

#: how long members that join have company, in seconds
DELAY = 0.1
#: how many members' targets are stored at once, and how many partitions these may have together
_MEMBERS = 20
_PARTITIONS = 500

#: changes a group, under its lock
Change: TypeAlias = Callable[[GroupDraft], None]
#: is told what kept a change from the log; None for nothing
Stored: TypeAlias = Callable[[KafkaError | None], None]


class DelayedRounds:
    """The rounds of one shard's large groups.

    Args:
        find: the group of an id, if it is there.
        inputs: what a group's next target is computed from.
        store: applies a change to a group, if it is there, and tells what came of it.
        thread: computes targets.
    """

    def __init__(
        self,
        find: Callable[[str], ConsumerGroup | None],
        inputs: Callable[[ConsumerGroup], AssignmentInputs],
        store: Callable[[str, Change, Stored], None],
        thread: Pool,
    ) -> None:
        self._find = find
        self._inputs = inputs
        self._store = store
        self._thread = thread
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, group_id: str) -> None:
        """Compute and store the group's target, unless that is under way."""
        if group_id in self._under_way:
            return
        task = asyncio.get_running_loop().create_task(self._run(group_id))
        self._under_way[group_id] = task
        task.add_done_callback(partial(self._done, group_id))

    def stop(self) -> None:
        """Give up what is under way."""
        for task in self._under_way.values():
            task.cancel()

    async def _run(self, group_id: str) -> None:
        while True:
            await asyncio.sleep(DELAY)
            group = self._find(group_id)
            if group is None or group.epoch <= group.assignment_epoch:
                return
            epoch = group.epoch
            inputs = self._inputs(group)
            targets = await self._thread.run(inputs.assign)
            for some in _pieces(targets):
                await self._stored(group_id, partial(_put_targets, some, inputs.members))
            await self._stored(group_id, partial(_put_epoch, epoch))

    async def _stored(self, group_id: str, change: Change) -> None:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def stored(error: KafkaError | None) -> None:
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        self._store(group_id, change, stored)
        await done
        await asyncio.sleep(0)  # others have the loop between two pieces, though nothing waits for the log

    def _done(self, group_id: str, task: asyncio.Task[None]) -> None:
        self._under_way.pop(group_id, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, KafkaError):  # else what stores has told of it, and a heartbeat begins again
            logger.error("group %s: its partitions cannot be assigned", group_id, exc_info=error)


def _put_targets(
    targets: Mapping[str, Partitions], members: Mapping[str, ConsumerMember], draft: GroupDraft
) -> None:
    """Store targets of those who are members still; `members` are those for whom they were computed."""
    for member_id, target in targets.items():
        if member_id in draft.group.members:
            draft.put_target(member_id, target)
        elif (successor := draft.group.holder(members[member_id].instance_id)) is not None:
            draft.put_target(successor.member_id, target)  # a static member that has restarted meanwhile


def _put_epoch(epoch: int, draft: GroupDraft) -> None:
    if draft.group.assignment_epoch < epoch <= draft.group.epoch:
        draft.put_assignment_epoch(epoch)


def _pieces(targets: Mapping[str, Partitions]) -> Iterator[Mapping[str, Partitions]]:
    piece: dict[str, Partitions] = {}
    size = 0
    for member_id, target in targets.items():
        piece[member_id] = target
        size += sum(map(len, target.values()))
        if len(piece) == _MEMBERS or size >= _PARTITIONS:
            yield piece
            piece, size = {}, 0
    if piece:
        yield piece
