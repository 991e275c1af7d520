"""Computes the target assignments of large groups in a thread, and stores them in parts.

A computation begins when the group has not changed for 100 ms, so that members that join together need only
one target. If a group changes all the time, the computation begins after 2 s. The coordinator stores the
targets of some members at a time, and the assignment epoch last. If the coordinator fails in between, the
next coordinator computes another target. Until the assignment epoch is stored, members stay in their epochs.
A member that advances meanwhile gets a partition of its new target only if no other member owns the
partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Generic, TypeAlias, TypeVar

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import KafkaError
from barnabas.base.text import logger_of
from barnabas.broker.coordinator.groups.modern.draft import ModernGroupDraft
from barnabas.broker.coordinator.groups.modern.group import ModernGroup
from barnabas.broker.coordinator.groups.modern.member import Partitions
from barnabas.broker.coordinator.groups.modern.target_assignment import AssignmentInputs

logger = logger_of(__name__)

#: the time without a change before a computation, in seconds
DELAY = 0.1
#: the longest time between the first change and the computation, in seconds
_MAX_DELAY = 2.0
#: the most members, and partitions in their targets, that are stored in one operation: 1.5 to 3 ms
_MEMBERS = 200
_PARTITIONS = 2000
#: the shortest heartbeat interval of a member that waits for its first partitions, in ms
_SOON_MS = 500
#: the most heartbeats in a millisecond of all members that wait
_HEARTBEATS_A_MS = 2

G = TypeVar("G", bound=ModernGroup[Any])
D = TypeVar("D", bound=ModernGroupDraft[Any, Any])

#: changes a group's draft, under the group's lock
Change: TypeAlias = Callable[[D], None]


class DelayedAssignments(Generic[G, D]):
    """Computes and stores the target assignments of one shard's large groups, in a thread.

    Args:
        find: called with a group id; returns the group, or None if it does not exist.
        inputs: called with a group; returns the data from which its next target assignment is computed.
        store: called with a group id and a function that changes a draft of the group. `store` must call this
            function with a draft under the group's lock, and store the draft's records. If that fails, it
            raises KafkaError.
        thread: computes the target assignments.
    """

    def __init__(
        self,
        find: Callable[[str], G | None],
        inputs: Callable[[G], AssignmentInputs[D]],
        store: Callable[[str, Change[D]], Awaitable[None]],
        thread: Pool,
    ) -> None:
        self._find = find
        self._inputs = inputs
        self._store = store
        self._thread = thread
        self._under_way: dict[str, asyncio.Task[None]] = {}

    def begin(self, group_id: str) -> None:
        """Start a task that computes and stores the group's target assignment.

        Do nothing if such a task already runs for the group.
        """
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
            group = await self._settled(group_id)
            if group is None or group.epoch <= group.assignment_epoch:
                return
            epoch = group.epoch
            inputs = self._inputs(group)
            targets = await self._thread.run(inputs.assign)
            for some in _pieces(targets):
                await self._stored(group, partial(inputs.put, some))
            await self._stored(group, partial(_put_epoch, epoch))

    async def _settled(self, group_id: str) -> G | None:
        """Wait until the group's epoch has not changed for `DELAY` seconds. Wait at most `_MAX_DELAY` s.

        Return the group; None if the group does not exist.
        """
        epoch = None
        for _ in range(round(_MAX_DELAY / DELAY)):
            await asyncio.sleep(DELAY)
            group = self._find(group_id)
            if group is None or group.epoch == epoch:
                break
            epoch = group.epoch
        return group

    async def _stored(self, group: G, change: Change[D]) -> None:
        def change_same(draft: D) -> None:
            if self._find(group.group_id) is group:  # else it was deleted, and created again
                change(draft)

        await self._store(group.group_id, change_same)
        await asyncio.sleep(0)  # lets the loop serve others between two pieces

    def _done(self, group_id: str, task: asyncio.Task[None]) -> None:
        self._under_way.pop(group_id, None)
        if task.cancelled() or (error := task.exception()) is None:
            return
        if not isinstance(error, KafkaError):  # else the runtime has logged it, and a heartbeat begins again
            logger.error("group %s: its partitions cannot be assigned", group_id, exc_info=error)


def interval_without_partitions(interval_ms: int, members: int) -> int:
    """Return the heartbeat interval of a member that waits for its first partitions, in ms.

    It can be shorter than the usual interval, and grows with the number of members.

    Args:
        interval_ms: the usual interval, which is the longest result.
        members: the number of members of the group; all of them may wait.
    """
    return min(interval_ms, max(_SOON_MS, members // _HEARTBEATS_A_MS))


def _put_epoch(epoch: int, draft: ModernGroupDraft[Any, Any]) -> None:
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
