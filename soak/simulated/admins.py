"""Clients that change topics: they delete records, delete and create topics, change settings and add
partitions.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.kafka.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from soak.roles.common import Task
from soak.simulated.client import Client, Place, is_retriable, name_of
from soak.simulated.fetcher import EARLIEST, LATEST, Fetcher, list_offsets
from soak.simulated.stage import Stage

_TOPIC = 2
#: seconds that the last call of an admin may take after it was told to stop
_PATIENCE = 60.0
#: how often a deletion of a topic that is not known is tried with the id that brokers tell
_ASKED = 10


class Keep(Client):
    """Notes the start and the end of logs, and deletes records of `outputs`."""

    role = "keep"

    async def run(self) -> None:
        await self.know(self.task.topics)
        places = [(topic, number) for topic, count in self.task.topics.items() for number in range(count)]
        deletes = 0
        while not self.stopping:
            asked = self.stage.now()
            starts = await list_offsets(self, places, EARLIEST)
            ends = await list_offsets(self, places, LATEST)
            both = [place for place in starts if place in ends]
            bounds = [(*place, starts[place], ends[place]) for place in both]
            self.recorder.note("bounds", asked=asked, bounds=bounds)
            for topic, partition, start, end in bounds:
                if start > end:
                    self.stage.complain("bounds", f"{topic}-{partition} begins at {start} and ends at {end}")
            shrinking = [place for place in both if place[0] in self.task.outputs]
            if shrinking and self.random.random() < 0.3:
                place = self.random.choice(shrinking)
                deletes += 1
                length = ends[place] - starts[place]
                await self._delete(deletes, place, starts[place] + int(length * self.random.random() ** 2))
            await self.rest()

    async def _delete(self, number: int, place: Place, offset: int) -> None:
        topic, partition = place
        self.recorder.note("delete", number=number, offsets=[(topic, partition, offset)])
        parts = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=parts)], timeout_ms=3000
        )
        try:
            response = await self.ask_leader(place, request)
        except ChannelError as error:
            self.recorder.note("deleted", number=number, ok=False, error=str(error))
            return
        code = response.topics[0].partitions[0].error_code
        self.judge_leader(place, code, "DeleteRecords")
        self.recorder.note("deleted", number=number, ok=not code, error=name_of(code) if code else None)


class Recycle(Client):
    """Reads a topic to its end, deletes it and creates it again."""

    role = "recycle"

    def __init__(self, stage: Stage, task: Task, life: int) -> None:
        super().__init__(stage, task, life)
        #: the ids of topics that are certainly deleted, which some brokers may still show
        self._gone: dict[bytes, None] = {}
        #: the id of the one that was made, if that is known
        self._made: bytes | None = None

    async def run(self) -> None:
        ((topic, count),) = self.task.topics.items()
        while await self._create(topic, count) and not self.stopping:
            await self._know_new(topic)
            await self.pause_for(self.random.uniform(2.0, 8.0))
            if self.stopping:
                return
            for partition in range(count):
                await self._scan((topic, partition))
            if not await self._remove(topic):
                return
            await self.pause_for(self.random.choice([0.0, self.random.uniform(0.0, 1.5)]))

    async def _create(self, topic: str, count: int) -> bool:
        self.recorder.note("create", topic=topic)
        deadline: float | None = None
        configs = [CreatableTopicConfig(name=n, value=v) for n, v in self.task.configs.items()]
        asked = CreatableTopic(
            name=topic, num_partitions=count, replication_factor=self.stage.replicas, configs=configs
        )
        while True:
            try:
                answer = (
                    await self.ask_controller(CreateTopicsRequest(topics=[asked], timeout_ms=3000))
                ).topics[0]
            except ChannelError:
                pass
            else:
                self.note_code(answer.error_code, "CreateTopics")
                if answer.error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    existed = bool(answer.error_code)
                    self._made = None if existed else answer.topic_id
                    made = None if existed else answer.topic_id.hex()
                    self.recorder.note("created", topic=topic, ok=True, topic_id=made, existed=existed)
                    return True
                too_few = self.stage.replicas > 1 and (
                    answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
                )
                if not too_few and not is_retriable(answer.error_code):
                    self.stage.complain("create-refused", f"{topic}: {name_of(answer.error_code)}")
            deadline = self._deadline(deadline)
            if deadline is not None and self.time() > deadline:
                self.recorder.note("created", topic=topic, ok=False, error="no answer")
                return False
            await self.back_off()

    async def _know_new(self, topic: str) -> None:
        """Wait until this client knows the id of the new topic."""
        while True:
            self.topic_ids.pop(topic, None)
            await self.know([topic])
            known = self.topic_ids[topic]
            if known not in self._gone and self._made in (None, known):
                return
            await self.back_off()

    async def _remove(self, topic: str) -> bool:
        self.recorder.note("remove", topic=topic)
        may_be_done = False
        tries = 0
        deadline: float | None = None
        while True:
            # By its id: a call without an answer that comes late must not delete the next topic of the name.
            state = DeleteTopicState(topic_id=self.topic_ids[topic])
            request = DeleteTopicsRequest(topics=[state], timeout_ms=3000)
            try:
                code = (await self.ask_controller(request)).responses[0].error_code
            except ChannelError:
                may_be_done = True
            else:
                self.note_code(code, "DeleteTopics")
                gone = self.topic_ids[topic]
                if not code or (code == ErrorCode.UNKNOWN_TOPIC_ID and (may_be_done or tries == _ASKED)):
                    self._gone[gone] = None
                    self.recorder.note("removed", topic=topic, ok=True, existed=not code or may_be_done)
                    return True
                if code == ErrorCode.UNKNOWN_TOPIC_ID:  # perhaps what a broker knew was old
                    tries += 1
                    await self.learn(topic)
                    self.topic_ids.setdefault(topic, gone)
                else:
                    may_be_done = True
            deadline = self._deadline(deadline)
            if deadline is not None and self.time() > deadline:
                self.recorder.note("removed", topic=topic, ok=False, error="no answer")
                return False
            await self.back_off()

    def _deadline(self, deadline: float | None) -> float | None:
        return self.time() + _PATIENCE if self.stopping and deadline is None else deadline

    async def _scan(self, place: Place) -> None:
        """Read all present records and note them. Note nothing if the read does not reach the end soon.

        Also note nothing if the end came from a former leader. It may know only the deleted topic of the same
        name, or lack records that the next leader has acknowledged.
        """
        asked = self.stage.now()
        fetcher = Fetcher(self, "read_uncommitted", with_session=False)
        if not await fetcher.seek([place]):
            return
        ends = await list_offsets(self, [place], LATEST)
        leader = self.routes.leader_of(place)
        if leader is None or not self.stage.leads(leader, *place):
            return
        records: list[tuple[int, str, str | None]] = []
        for _ in range(100):
            if place not in ends:
                return
            if fetcher.positions[place] >= ends[place]:
                self.recorder.note("scan", asked=asked, topic=place[0], partition=place[1], records=records)
                return
            records += [(found.offset, found.id, found.key) for found in await fetcher.poll(0.05)]


class Tinker(Client):
    """Changes settings of topics while clients use them, and adds partitions to one of them."""

    role = "tinker"

    async def run(self) -> None:
        await self.know(self.task.topics)
        counts = dict(self.task.outputs)
        while not self.stopping:
            await self.rest()
            if counts and self.random.random() < 0.2:
                topic = self.random.choice(list(counts))
                counts[topic] += 1
                if counts[topic] <= self.task.outputs[topic] + 3:
                    await self._grow(topic, counts[topic])
            else:
                await self._configure(self.random.choice(list(self.task.topics)))

    async def _grow(self, topic: str, count: int) -> None:
        asked = CreatePartitionsTopic(name=topic, count=count, assignments=None)
        try:
            response = await self.ask_controller(CreatePartitionsRequest(topics=[asked], timeout_ms=3000))
        except ChannelError:
            return
        for answer in response.results:
            self.note_code(answer.error_code, "CreatePartitions")

    async def _configure(self, topic: str) -> None:
        changes = {
            "segment.bytes": str(self.random.choice([2048, 4096, 16384])),
            "min.cleanable.dirty.ratio": str(self.random.choice([0.05, 0.3])),
            "segment.ms": str(self.random.choice([3000, 20000])),
            "compression.type": self.random.choice(["producer", "gzip", "uncompressed"]),
        }
        name = self.random.choice(list(changes))
        change = AlterableConfig(name=name, config_operation=0, value=changes[name])
        resource = AlterConfigsResource(resource_type=_TOPIC, resource_name=topic, configs=[change])
        try:
            response = await self.ask_controller(IncrementalAlterConfigsRequest(resources=[resource]))
        except ChannelError:
            return
        for answer in response.responses:
            self.note_code(answer.error_code, "IncrementalAlterConfigs")
