"""Computes the target assignments of large groups in a thread, and stores them in parts.

A computation begins a short time after a change, so that members that join together share one target. The
coordinator stores the targets of some members at a time, and the assignment epoch last. If the coordinator
fails in between, the next one computes another target. Until the epoch is stored, members stay in their
epochs. A member that advances meanwhile gets a partition of its new target only if no other member owns it.
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

#: the time between a change and the computation, in seconds
DELAY = 0.1
#: the members whose targets are stored at once, and the partitions that these may have together
_MEMBERS = 20
_PARTITIONS = 500

#: changes a group, under its lock
Change: TypeAlias = Callable[[GroupDraft], None]
#: gets the error that kept a change from the log, or None
Stored: TypeAlias = Callable[[KafkaError | None], None]


class DelayedRounds:
    """The computations for the large groups of one shard.

    Args:
        find: returns the group with an id, if it exists.
        inputs: returns the inputs of a group's next target.
        store: applies a change to a group, if it exists, and reports the outcome.
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
        """Compute and store the group's target, unless that is already in progress."""
        if group_id in self._under_way:
            return
        task = asyncio.get_running_loop().create_task(self._run(group_id))
        self._under_way[group_id] = task
        task.add_done_callback(partial(self._done, group_id))

    def stop(self) -> None:
        """Cancel all computations."""
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
        await asyncio.sleep(0)  # lets the loop serve others between two pieces

    def _done(self, group_id: str, task: asyncio.Task[None]) -> None:
        self._under_way.pop(group_id, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, KafkaError):  # else the runtime has logged it, and a heartbeat begins again
            logger.error("group %s: its partitions cannot be assigned", group_id, exc_info=error)


def _put_targets(
    targets: Mapping[str, Partitions], members: Mapping[str, ConsumerMember], draft: GroupDraft
) -> None:
    """Store the targets of present members. `members` are those at the time of the computation."""
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
