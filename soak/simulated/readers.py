"""Clients that read: without a group, in groups, and with transactions that copy records."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.environment.clock import Clock
from soak.roles.common import Reader, Task, Writer
from soak.simulated.client import GROUP, Client, Place, name_of, named
from soak.simulated.fetcher import Fetcher, Found
from soak.simulated.members import (
    AssignedMember,
    ClassicMember,
    ConsumerMember,
    Member,
    commit_offsets,
    fetch_offsets,
)
from soak.simulated.stage import Stage
from soak.simulated.transaction import TransactionalProducer, Unfinished

_COMMIT_SECONDS = 0.7
#: how a client comes by its partitions
_MEMBERS: dict[str, Callable[..., Member]] = {
    "consumer": ConsumerMember,
    "classic": ClassicMember,
    "assigned": AssignedMember,
}


class Watch(Client):
    """Reads partitions from their beginning, without a group. Sometimes it starts
    again from the beginning.
    """

    role = "watch"

    async def run(self) -> None:
        await self.know(self.task.topics)
        places = [(topic, number) for topic, count in self.task.topics.items() for number in range(count)]
        fetcher = Fetcher(self, self.task.isolation, with_session=self.random.random() < 0.7)
        reader = Reader(self.recorder)
        while not self.stopping:
            started = await fetcher.seek(places)
            if len(started) < len(places):
                await self.back_off()
                continue
            reader.moved(started)
            for _ in range(self.random.randrange(20, 60)):
                reader.read([(*found.place, found.offset, found.id) for found in await fetcher.poll()])
                await self.rest()
                if self.stopping:
                    break


class GroupReader(Client):
    """The base of clients in groups of both protocols: the owned partitions, the
    positions and the commits.
    """

    def __init__(self, stage: Stage, task: Task, life: int) -> None:
        super().__init__(stage, task, life)
        self.reader = Reader(self.recorder)
        self.fetcher = Fetcher(self, task.isolation, with_session=self.random.random() < 0.7)
        self.member: Member = _MEMBERS[task.protocol](
            self, on_assigned=self._assigned, on_revoked=self._revoked, on_lost=self._lost
        )
        #: assigned, and not yet known where to begin
        self._unplaced: dict[Place, None] = {}

    async def before_revoked(self) -> None:
        """Commit the offsets of partitions that the member is about to give up."""

    async def read_some(self) -> None:
        """Execute the next step of the group's protocol, and read the present records."""
        await self.member.step()
        await self._place()
        found = await self.fetcher.poll(0.3)
        self.reader.read([(*each.place, each.offset, each.id) for each in found if self._is_ours(each)])

    async def rewind(self) -> None:
        """Set the positions to the group's committed offsets."""
        places = list(self.member.owned)
        for place in places:
            self.fetcher.positions.pop(place, None)
        self._unplaced = dict.fromkeys(places)
        self.reader.taken()
        self.reader.revoked(places)
        self.reader.assigned(places)

    def _is_ours(self, found: Found) -> bool:
        return found.place in self.member.owned

    async def _assigned(self, places: list[Place]) -> None:
        self.reader.assigned(places)
        self._unplaced.update(dict.fromkeys(places))
        await self._place()

    async def _revoked(self, places: list[Place]) -> None:
        await self.before_revoked()
        await self._lost(places)

    async def _lost(self, places: list[Place]) -> None:
        for place in places:
            self.fetcher.positions.pop(place, None)
            self._unplaced.pop(place, None)
        self.reader.revoked(places)

    async def _place(self) -> None:
        """Set the position of each new partition to the group's committed offset, or to the log start if
        there is none.
        """
        if not self._unplaced:
            return
        places = list(self._unplaced)
        offsets = await fetch_offsets(self, places, group=self.task.group, member=self.member)
        if offsets is None:
            await self.back_off()
            return
        missing = [place for place in places if place not in offsets]
        if missing:
            started = await self.fetcher.seek(missing)
            for place in started:
                if place not in self._unplaced:  # it was taken away meanwhile
                    self.fetcher.positions.pop(place, None)
                self._unplaced.pop(place, None)
        for place, offset in offsets.items():
            if place in self._unplaced:
                del self._unplaced[place]
                self.fetcher.positions[place] = offset


class Consume(GroupReader):
    """Reads in a group, and commits at intervals."""

    role = "consume"

    @property
    def has_ended(self) -> bool:
        """Whether the member leaves its group now."""
        return self.stopping

    async def run(self) -> None:
        await self.find_coordinator(self.task.group, GROUP)
        due = 0.0
        while not self.has_ended:
            await self.read_some()
            if self.reader.done and self.time() > due:
                await self._commit()
                due = self.time() + _COMMIT_SECONDS
            await self.rest()
        await self._commit()
        await self.member.leave()

    async def before_revoked(self) -> None:
        await self._commit()

    async def _commit(self) -> None:
        offsets = self.reader.taken()
        if not offsets:
            return
        self.reader.commit(offsets)
        code = await commit_offsets(self, self.member, offsets)
        if code == 0:
            self.reader.committed()
        else:
            error = "no answer" if code is None else name_of(code)
            self.reader.not_committed(offsets, error, self.member.owned)


class Transform(GroupReader):
    """Consumes, transforms and produces: one output for each input, and the offsets
    in the same transaction.
    """

    role = "transform"

    def __init__(self, stage: Stage, task: Task, life: int, clock: Clock, *, is_v2: bool) -> None:
        super().__init__(stage, task, life)
        self._writer = Writer(named(task, self.name), self.recorder)
        self._producer = TransactionalProducer(self, self._writer, clock, is_v2=is_v2)

    async def run(self) -> None:
        await self._producer.init()
        await self.find_coordinator(self.task.group, GROUP)
        while not self.stopping:
            await self.read_some()
            if self.reader.done:
                await self._transform()
            await self.rest()
        await self.member.leave()

    async def _transform(self) -> None:
        number = self._producer.begin()
        inputs, offsets = self.reader.inputs, self.reader.taken()
        member_id, generation = self.member.identity
        try:
            await self._producer.send(
                [self._writer.draft(self.task.outputs, number, source) for source in inputs]
            )
            await self._producer.flush()
            await self._producer.add_offsets(offsets, generation=generation, member=member_id)
        except Unfinished:
            await self._producer.abort()
            await self.rewind()
            return
        await self._producer.commit()
