"""The final reads: each partition with both isolation levels, and the offsets of the groups."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from soak.checker.model import READ_COMMITTED, READ_UNCOMMITTED
from soak.simulated.client import GROUP, Client, Place, name_of
from soak.simulated.fetcher import EARLIEST, LATEST, Fetcher, Found, list_offsets
from soak.simulated.members import fetch_offsets
from soak.simulated.plan import TOPICS, Slot
from soak.simulated.stage import LETTERS, MADE_LETTERS, RECYCLED

_PATIENCE = 60.0
#: polls that may bring nothing before a partition's end
_EMPTY = 40


class Survey(Client):
    """Reads from brokers after all faults. It runs in the simulation's own context and is not a simulated
    process.
    """

    role: ClassVar[str] = "survey"

    async def run(self) -> None:
        """Do nothing: the survey has no work of its own."""

    async def create(self, name: str, partitions: int, replicas: int, config: dict[str, str]) -> None:
        """Create a topic.

        Raises:
            RuntimeError: the cluster rejects the topic, or it takes too long.
        """
        asked = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=replicas,
            configs=[CreatableTopicConfig(name=n, value=v) for n, v in config.items()],
        )
        deadline = self.time() + _PATIENCE
        while True:
            said = "no answer"
            try:
                response = await self.ask_controller(CreateTopicsRequest(topics=[asked], timeout_ms=3000))
            except ChannelError:
                pass
            else:
                answer = response.topics[0]
                if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    return
                said = f"{name_of(answer.error_code)} {answer.error_message}"
            if self.time() > deadline:
                raise RuntimeError(f"{name} cannot be created: {said}")
            await self.back_off()

    async def topics(self) -> dict[str, int]:
        while not await self.learn():
            await self.back_off()
        return {name: self.partitions[name] for name in sorted(self.topic_ids) if not name.startswith("__")}

    async def places(self) -> list[Place]:
        return [(topic, number) for topic, count in (await self.topics()).items() for number in range(count)]

    async def await_stable(self) -> None:
        """Wait until no transaction is open. Return when the time is up: the checker then reports open
        transactions.
        """
        deadline = self.time() + _PATIENCE
        places = await self.places()
        while self.time() < deadline:
            ends = [
                await list_offsets(self, places, LATEST, committed=isolated) for isolated in (False, True)
            ]
            if len(ends[0]) == len(places) and ends[0] == ends[1]:
                return
            await self.pause_for(0.5)

    async def await_groups(self, slots: Iterable[Slot]) -> None:
        """Wait until the groups have committed the end of their topics, or the time is up."""
        waiting = {slot.group: slot for slot in slots}
        if not waiting:
            return
        places = await self.places()
        last = {
            isolation: await self.last_offsets(isolation)
            for isolation in {slot.task.isolation: None for slot in waiting.values()}
        }
        deadline = self.time() + _PATIENCE
        while waiting and self.time() < deadline:
            starts = await list_offsets(self, places, EARLIEST)
            for group, slot in list(waiting.items()):
                offsets = await fetch_offsets(self, None, group=group)
                if offsets is not None and all(
                    offsets.get(place, 0) > end or starts.get(place, 0) > end
                    for place, end in last[slot.task.isolation].items()
                    if place[0] in slot.task.topics and place[0] != RECYCLED
                ):
                    del waiting[group]
            await self.pause_for(0.5)

    async def last_offsets(self, isolation: str) -> dict[Place, int]:
        """The offset of the last record that a reader finds in each partition; -1 for none."""
        contents = await self.contents(await self.places(), isolation)
        return {
            place: max((found.offset for found in records), default=-1) for place, records in contents.items()
        }

    def note_topics(self, names: Iterable[str]) -> None:
        """Note in the history which records of each topic may be deleted."""
        for name in names:
            config = TOPICS.get(name, {})
            retention = config.get("retention.ms")
            self.recorder.note(
                "topic",
                name=name,
                replicas=self.stage.replicas,
                compacted="compact" in config.get("cleanup.policy", ""),
                retention_ms=None if retention is None else int(retention),
                retention_bytes=None,
            )

    async def record(self, groups: Iterable[str]) -> None:
        """Read everything and write it into the history."""
        self.note_topics(await self.topics())
        places = [place for place in await self.places() if place[0] not in (LETTERS, MADE_LETTERS)]
        # In this order: what compaction takes in between was no aborted record.
        for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
            contents = await self.contents(places, isolation)
            starts = await self._offsets(places, EARLIEST)
            ends = await self._offsets(places, LATEST, committed=isolation == READ_COMMITTED)
            for place, records in contents.items():
                self.recorder.note(
                    "log",
                    topic=place[0],
                    partition=place[1],
                    isolation=isolation,
                    start=starts.get(place, 0),
                    end=ends.get(place, 0),
                    is_whole=place not in self.unread and place in starts and place in ends,
                    records=[(found.offset, found.id, found.key) for found in records],
                )
        deadline = self.time() + _PATIENCE
        for group in groups:
            await self.find_coordinator(group, GROUP)
            while (offsets := await fetch_offsets(self, None, group=group)) is None:
                if self.time() > deadline:
                    self.stage.complain("no-offsets", f"the offsets of {group} cannot be read")
                    return
                await self.back_off()
            self.recorder.note(
                "group", group=group, offsets=[(topic, n, offset) for (topic, n), offset in offsets.items()]
            )

    async def _offsets(
        self, places: list[Place], timestamp: int, *, committed: bool = False
    ) -> dict[Place, int]:
        """Call `list_offsets` again while leaders change. The result lacks partitions without an answer in
        time.
        """
        deadline = self.time() + _PATIENCE
        while True:
            found = await list_offsets(self, places, timestamp, committed=committed)
            if len(found) == len(places) or self.time() > deadline:
                return found
            await self.back_off()

    async def contents(self, places: list[Place], isolation: str) -> dict[Place, list[Found]]:
        """Read all records of the partitions. `unread` gets the partitions whose end
        the reads do not reach.
        """
        fetcher = Fetcher(self, isolation, with_session=False)
        records: dict[Place, list[Found]] = {place: [] for place in places}
        for _ in range(_EMPTY):
            if len(await fetcher.seek(places)) == len(places):
                break
            await self.back_off()
        ends = await self._offsets(places, LATEST, committed=isolation == READ_COMMITTED)
        empty = 0
        self.unread = list(places)
        while self.unread and empty < _EMPTY:
            found = await fetcher.poll(0.1)
            for each in found:
                records[each.place].append(each)
            before = len(self.unread)
            self.unread = [p for p in self.unread if fetcher.positions.get(p, -1) < ends.get(p, 2**62)]
            empty = 0 if found or len(self.unread) < before else empty + 1
            for place in places:
                if place not in self.unread:
                    fetcher.positions.pop(place, None)
        return records
