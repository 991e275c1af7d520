"""A cluster of three brokers in virtual time, and a client that chooses the broker of each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from simulation.ensemble import SimulatedEnsemble
from simulation.virtual_time import run_virtual
from soak.roles.common import Task
from soak.simulated.client import GROUP
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.fetcher import LATEST
from soak.simulated.plan import TOPICS
from soak.simulated.stage import Stage, Trace, host_of
from soak.simulated.survey import Survey

from barnabas.base.errors import ErrorCode
from barnabas.base.types import TopicPartition
from barnabas.broker.metadata.store import SessionState
from barnabas.broker.server.broker import Broker
from barnabas.kafka.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.kafka.protocol.messages.init_producer_id import InitProducerIdRequest
from barnabas.kafka.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from barnabas.kafka.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.kafka.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.records import Record, encode_batch

#: one of them is coordinated by a broker that is not the controller
GROUPS = [f"copies-{number}" for number in range(20)]
#: seconds within which an answer comes that has nothing to wait for
AT_ONCE = 0.5


class Scene:
    """The cluster, with the topic `events` of six partitions, and the client."""

    def __init__(self, cluster: SimulatedCluster, survey: Survey) -> None:
        self.cluster = cluster
        self.survey = survey
        self.group = GROUPS[0]

    @property
    def ensemble(self) -> SimulatedEnsemble:
        assert self.cluster.ensemble is not None
        return self.cluster.ensemble

    def broker(self, broker_id: int) -> Broker:
        return self.cluster.running[broker_id]

    async def coordinator_beside_controller(self) -> int:
        """Choose a new `group` whose coordinator is not the controller. Return the coordinator."""
        for self.group in GROUPS:
            coordinator = await self.coordinator(GROUP, self.group)
            if not self.broker(coordinator).controller.active:
                return coordinator
        raise AssertionError("the controller coordinates all groups")

    async def coordinator(self, kind: int, key: str) -> int:
        self.survey.routes.doubt_coordinator((kind, key))
        await self.survey.find_coordinator(key, kind)
        found = self.survey.routes.coordinator_of((kind, key))
        assert found is not None
        return found

    async def commit(self, broker: int, offset: int) -> int:
        topic = OffsetCommitRequestTopic(
            name="events",
            partitions=[OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)],
        )
        request = OffsetCommitRequest(
            group_id=self.group, generation_id_or_member_epoch=-1, member_id="", topics=[topic]
        )
        response = await self.survey.ask(request, broker=broker, max_version=9)
        return int(response.topics[0].partitions[0].error_code)

    async def committed(self, broker: int, timeout: float = 10.0) -> int | ErrorCode:
        """Return the committed offset in a broker's answer, or its error."""
        request = OffsetFetchRequest(
            groups=[OffsetFetchRequestGroup(group_id=self.group, topics=None)], require_stable=True
        )
        response = await self.survey.ask(request, broker=broker, max_version=9, timeout=timeout)
        group = response.groups[0]
        if group.error_code:
            return ErrorCode(group.error_code)  # type: ignore[call-arg]
        return int(group.topics[0].partitions[0].committed_offset)

    async def latest(self, broker: int) -> int | ErrorCode:
        topic = ListOffsetsTopic(
            name="events", partitions=[ListOffsetsPartition(partition_index=0, timestamp=LATEST)]
        )
        response = await self.survey.ask(ListOffsetsRequest(topics=[topic]), broker=broker, timeout=10.0)
        part = response.topics[0].partitions[0]
        return ErrorCode(part.error_code) if part.error_code else int(part.offset)  # type: ignore[call-arg]

    async def read(self, broker: int, partition: TopicPartition, offset: int) -> ErrorCode:
        """Fetch from a broker at an offset. Return the error code."""
        wanted = FetchPartition(partition=partition.partition, fetch_offset=offset)
        request = FetchRequest(topics=[FetchTopic(topic=partition.topic, partitions=[wanted])])
        response = await self.survey.ask(request, broker=broker, max_version=12)
        code = response.responses[0].partitions[0].error_code
        return ErrorCode(code)  # type: ignore[call-arg]

    async def init(self, broker: int, transactional_id: str) -> int | ErrorCode:
        request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=5000)
        response = await self.survey.ask(request, broker=broker, timeout=10.0)
        code = response.error_code
        return ErrorCode(code) if code else int(response.producer_epoch)  # type: ignore[call-arg]

    def leads(self, broker: int, partition: TopicPartition) -> bool:
        return self.broker(broker).replicas.find(*partition).is_leader

    def state(self, broker: int) -> SessionState:
        return self.ensemble.store_of(host_of(broker)).state

    @property
    def group_partition(self) -> TopicPartition:
        """Return the partition with the group's offsets."""
        groups = next(iter(self.cluster.running.values())).groups
        return TopicPartition("__consumer_offsets", groups.partition_for(self.group))

    async def successor(self, of: int) -> int:
        """Return the group's coordinator after `of`, when the other brokers have elected it."""
        return await self.successor_of(of, self.group_partition)

    def leader_of(self, partition: TopicPartition) -> int:
        """Return the leader of a partition by the decisions of the cluster."""
        decided = self.survey.stage.decided(*partition)
        assert decided is not None
        return decided.leader

    def partition_led_by(self, broker: int) -> TopicPartition:
        """Return a partition of the topic that this broker leads."""
        places = [TopicPartition("events", number) for number in range(6)]
        return next(place for place in places if self.leader_of(place) == broker)

    async def successor_of(self, of: int, partition: TopicPartition, within: float = 60.0) -> int:
        """Return the next leader of a partition after `of`, when it knows of its leadership, within `within`
        seconds.
        """
        deadline = self.survey.time() + within
        while self.leader_of(partition) in (of, -1):
            assert self.survey.time() < deadline, f"{partition} is still led by {of}"
            await self.survey.pause_for(0.1)
        await self.survey.pause_for(1.0)
        return self.leader_of(partition)

    async def produce(self, broker: int, partition: TopicPartition) -> ErrorCode:
        """Send one record to a broker with acks=all, and return the error code."""
        batch = encode_batch([Record(key=b"k", value=b"v", timestamp=self.broker(broker).clock.now_ms())])
        data = PartitionProduceData(index=partition.partition, records=batch)
        request = ProduceRequest(
            acks=-1,
            timeout_ms=2000,
            topic_data=[TopicProduceData(name=partition.topic, partition_data=[data])],
        )
        response = await self.survey.ask(request, broker=broker, max_version=12)
        code = response.responses[0].partition_responses[0].error_code
        return ErrorCode(code)  # type: ignore[call-arg]


def play(scenario: Callable[[Scene], Awaitable[None]], *, brokers: int = 3) -> None:
    async def run() -> None:
        stage = Stage(1, Trace(), brokers)
        cluster = SimulatedCluster(stage, durable=False)
        assert await cluster.up()
        survey = Survey(stage, Task("survey", "survey", "simulated", "", "", 1, {}))
        await survey.create("events", 6, brokers, TOPICS["events"])
        await scenario(Scene(cluster, survey))
        assert stage.violations == []
        for each in cluster.brokers.values():
            each.kill(power=False)

    run_virtual(run())
