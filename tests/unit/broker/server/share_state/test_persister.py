"""The persister finds the share coordinator of each share partition, and retries until it answers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest
from simulation.clocks import VirtualClock
from simulation.virtual_time import run_virtual
from tests.unit.broker.coordinator.conftest import MemoryLog
from tests.views import view_of

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import SHARE_GROUP_STATE_TOPIC
from barnabas.broker.awaitables import resolve
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator import (
    CoordinatorPosition,
    ShareCoordinator,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from barnabas.broker.interbroker import DisconnectedError, UnsupportedVersionError
from barnabas.broker.metadata.image import ClusterImage, PartitionState, TopicImage
from barnabas.broker.server.handlers import load
from barnabas.broker.server.share_state.persister import RETRY_TIMEOUT, CoordinatorPersister
from barnabas.kafka.protocol import codec

TOPIC_ID = bytes(range(16))
KEYS = [SharePartitionKey("g", TOPIC_ID, number) for number in range(8)]
KEY = KEYS[0]
HERE, THERE, NOBODY = 1, 2, -1
BATCHES = (StateBatch(0, 9, 0, 1), StateBatch(10, 10, 2, 2))


def image(leader: int) -> ClusterImage:
    """Return an image in which one broker leads all partitions of the internal topic."""
    topic = TopicImage("t", TOPIC_ID, (PartitionState((1,), (1,), leader=1),) * len(KEYS))
    internal = TopicImage(
        SHARE_GROUP_STATE_TOPIC, bytes(16), (PartitionState((1, 2), (1, 2), leader=leader),)
    )
    return ClusterImage(
        topics={"t": topic, SHARE_GROUP_STATE_TOPIC: internal},
        topic_names={TOPIC_ID: "t", bytes(16): SHARE_GROUP_STATE_TOPIC},
    )


class Cluster:
    """This broker with a persister, and another one with a coordinator. `image` names the coordinator."""

    def __init__(self, leader: int) -> None:
        self.view = view_of(
            image(leader),
            config=BrokerConfig(node_id=HERE, share_coordinator_state_topic_num_partitions=1),
            clock=VirtualClock(asyncio.get_running_loop()),
        )
        self.local, self.remote = self._coordinator(), self._coordinator()
        #: the pending proof that this broker is still the coordinator; None if there is no doubt
        self.proof: asyncio.Future[bool] | None = None
        self.persister = CoordinatorPersister(
            self.view,
            self.local,
            self,  # type: ignore[arg-type]
            self._create,
            lambda _partition: self.proof,
        )
        #: the requests that the other broker got
        self.requests: list[Any] = []
        #: errors of the next requests
        self.failures: list[Exception] = []
        self.forgotten: list[tuple[int, str | None]] = []
        self.created: list[str] = []
        #: what a request waits for
        self.held: asyncio.Future[None] | None = None

    def _coordinator(self) -> ShareCoordinator:
        async def nothing(_partition: int, _start: int) -> None: ...

        coordinator = ShareCoordinator(self.view, MemoryLog(), nothing)
        coordinator.elect(0, 0)
        return coordinator

    async def _create(self, names: Any) -> dict[str, KafkaError]:
        self.created += names
        if len(self.created) == 1:
            return {names[0]: KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR)}
        self.view.image = image(THERE)
        return {}

    # as a `BrokerClient` and its channel

    def channel(self, broker: int, purpose: str) -> Cluster:
        assert (broker, purpose) == (THERE, "share state")
        return self

    def forget(self, broker: int, purpose: str | None = None) -> None:
        self.forgotten.append((broker, purpose))

    def submit(self, request: Any, *, timeout_s: float) -> asyncio.Future[Any]:
        assert timeout_s < RETRY_TIMEOUT
        return asyncio.ensure_future(self._answer(request))

    async def _answer(self, request: Any) -> Any:
        self.requests.append(request)
        if self.failures:
            raise self.failures.pop(0)
        if self.held is not None:
            await self.held
        version = request.versions[1]
        request = codec.decode(type(request), version, codec.encode(request, version))
        api = load()[request.api_key]
        response: Any = await resolve(api.handle(self.remote, None, request))
        return codec.decode(type(response), version, codec.encode(response, version))


@pytest.fixture
def play() -> Callable[..., None]:
    """Run a scenario in virtual time: `play(scenario, leader)`."""

    def run(scenario: Callable[[Cluster], Coroutine[Any, Any, None]], leader: int = THERE) -> None:
        async def main() -> None:
            cluster = Cluster(leader)
            await scenario(cluster)
            await cluster.local.stop()
            await cluster.remote.stop()

        run_virtual(main())

    return run


@pytest.mark.parametrize("leader", [HERE, THERE])
def test_the_coordinator_fences_requests_of_an_earlier_group(play, leader):
    async def scenario(cluster):
        persister = cluster.persister
        position, before = CoordinatorPosition(6, 60), CoordinatorPosition(6, 50)
        await persister.initialize(KEY, 3, 5, position)
        earlier = (await persister.read(KEY, 8)).initialized_at
        await persister.initialize(KEY, 4, 5, position)
        with pytest.raises(KafkaError) as refused:
            await persister.write(KEY, 4, 8, 5, 0, (), earlier)
        assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
        for replaced in (-1, earlier):
            with pytest.raises(KafkaError) as refused:
                await persister.initialize(KEY, 5, 5, before, replaced)
            assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
        with pytest.raises(KafkaError) as refused:
            await persister.delete(KEY, before)
        assert refused.value.code is ErrorCode.FENCED_STATE_EPOCH
        await persister.initialize(KEY, 5, 5, before, (await persister.summary(KEY)).initialized_at)
        await persister.delete(KEY, before)

    play(scenario, leader)


@pytest.mark.parametrize("leader", [HERE, THERE])
def test_a_state_is_kept_by_its_coordinator(play, leader):
    async def scenario(cluster):
        persister = cluster.persister
        assert await persister.summary(KEY) == ShareState()
        await persister.initialize(KEY, 3, 5)
        await persister.write(KEY, 3, 7, 2, 1, BATCHES)
        state = await persister.read(KEY, 8)
        assert state._replace(delivery_complete_count=-1) == ShareState(
            3, 8, 5, -1, (BATCHES[0]._replace(first_offset=5), BATCHES[1]), initialized_at=0
        )
        assert await persister.summary(KEY) == ShareState(3, 8, 5, 1, initialized_at=0)
        with pytest.raises(KafkaError) as refused:
            await persister.write(KEY, 3, 7, 2, 1, BATCHES)
        assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
        await persister.delete(KEY)
        with pytest.raises(KafkaError) as refused:
            await persister.read(KEY, 8)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert bool(cluster.requests) == (leader == THERE)

    play(scenario, leader)


def test_the_operations_of_one_turn_share_a_request_for_each_group(play):
    async def scenario(cluster):
        other = KEY._replace(group="h")
        await asyncio.gather(*(cluster.persister.initialize(key, 0, 0) for key in [*KEYS, other]))
        assert [len(request.topics[0].partitions) for request in cluster.requests] == [len(KEYS), 1]
        assert {key.partition for key, _ in cluster.remote.loaded_states()} == set(range(len(KEYS)))

    play(scenario)


def test_a_request_has_a_bound(play):
    async def scenario(cluster):
        await asyncio.gather(*(cluster.persister.initialize(key, 0, 0) for key in KEYS))
        cluster.requests.clear()
        many = [StateBatch(offset, offset, 2, 1) for offset in range(0, 2400, 2)]
        await asyncio.gather(*(cluster.persister.write(key, 0, 0, 0, 0, many) for key in KEYS))
        assert [len(request.topics[0].partitions) for request in cluster.requests] == [2] * 4

    play(scenario)


def test_writes_of_one_share_partition_stay_in_their_order(play):
    async def scenario(cluster):
        await cluster.persister.initialize(KEY, 0, 0)
        cluster.failures = [DisconnectedError("it is down")] * 2
        writes = [cluster.persister.write(KEY, 0, 0, number, number, ()) for number in range(4)]
        await asyncio.gather(*writes)
        starts = [request.topics[0].partitions[0].start_offset for request in cluster.requests]
        assert starts == [0, 0, 0, 0, 1, 2, 3]
        assert (await cluster.persister.summary(KEY)).delivery_complete_count == 3

    play(scenario)


def test_other_share_partitions_do_not_wait_for_one_that_is_stuck(play):
    async def scenario(cluster):
        await asyncio.gather(*(cluster.persister.initialize(key, 0, 0) for key in KEYS[:2]))
        cluster.held = asyncio.get_running_loop().create_future()
        stuck = asyncio.ensure_future(cluster.persister.write(KEYS[0], 0, 0, 5, 0, ()))
        await asyncio.sleep(1)
        held, cluster.held = cluster.held, None
        await cluster.persister.write(KEYS[1], 0, 0, 6, 0, ())
        assert not stuck.done()
        held.set_result(None)
        await stuck

    play(scenario)


def test_the_coordinator_is_looked_for_until_there_is_one(play):
    async def scenario(cluster):
        asyncio.get_running_loop().call_later(3, setattr, cluster.view, "image", image(THERE))
        await cluster.persister.initialize(KEY, 0, 0)
        assert len(cluster.requests) == 1

    play(scenario, NOBODY)


def test_a_coordinator_that_has_moved_is_followed(play):
    async def scenario(cluster):
        cluster.remote.resign(0)
        asyncio.get_running_loop().call_later(2, setattr, cluster.view, "image", image(HERE))
        await cluster.persister.initialize(KEY, 0, 0)
        assert [key for key, _ in cluster.local.loaded_states()] == [KEY]
        assert len(cluster.requests) > 1

    play(scenario)


def test_the_retries_end(play):
    async def scenario(cluster):
        began = cluster.view.clock.monotonic()
        with pytest.raises(KafkaError) as refused:
            await cluster.persister.read(KEY, 0)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert RETRY_TIMEOUT - 2 <= cluster.view.clock.monotonic() - began <= RETRY_TIMEOUT

    play(scenario, NOBODY)


def test_a_read_without_retries_fails_at_once(play):
    async def scenario(cluster):
        began = cluster.view.clock.monotonic()
        with pytest.raises(KafkaError) as refused:
            await cluster.persister.read(KEY, 0, retries=False)
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert cluster.view.clock.monotonic() - began < 0.01

    play(scenario, NOBODY)


def test_a_topic_that_is_gone_is_not_waited_for(play):
    async def scenario(cluster):
        with pytest.raises(KafkaError) as refused:
            await cluster.persister.initialize(KEY._replace(topic_id=b"x" * 16), 0, 0)
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert len(cluster.requests) == 1

    play(scenario)


def test_the_internal_topic_is_created_by_its_first_use(play):
    async def scenario(cluster):
        cluster.view.image = image(THERE)._replace(
            topics={"t": cluster.view.image.topics["t"]}, topic_names={TOPIC_ID: "t"}
        )
        await cluster.persister.initialize(KEY, 0, 0)
        assert cluster.created == [SHARE_GROUP_STATE_TOPIC] * 2

    play(scenario)


def test_a_peer_that_did_not_know_of_share_groups_is_connected_again(play):
    async def scenario(cluster):
        cluster.failures = [UnsupportedVersionError("broker 2 serves no version that we know")]
        await cluster.persister.initialize(KEY, 0, 0)
        assert cluster.forgotten == [(THERE, "share state")]

    play(scenario)


def test_a_caller_that_gives_up_does_not_hold_up_the_next(play):
    async def scenario(cluster):
        await cluster.persister.initialize(KEY, 0, 0)
        cluster.held = asyncio.get_running_loop().create_future()
        given_up = asyncio.ensure_future(cluster.persister.write(KEY, 0, 0, 5, 0, ()))
        await asyncio.sleep(1)
        given_up.cancel()
        held, cluster.held = cluster.held, None
        await cluster.persister.write(KEY, 0, 0, 6, 0, ())
        held.set_result(None)
        await asyncio.sleep(1)
        assert (await cluster.persister.summary(KEY)).start_offset == 6

    play(scenario)


def test_a_coordinator_on_this_broker_answers_when_it_has_proved_that_it_is_no_former_one(play):
    async def scenario(cluster):
        await cluster.persister.initialize(KEY, 3, 5)
        cluster.proof = asyncio.get_running_loop().create_future()
        read = asyncio.ensure_future(cluster.persister.read(KEY, 8))
        await asyncio.sleep(1)
        assert not read.done()
        cluster.proof.set_result(True)
        assert (await read).state_epoch == 3

    play(scenario, HERE)


def test_a_former_coordinator_on_this_broker_does_not_answer(play):
    """The broker is cut off from ZooKeeper. The next leader of the share partition has read the state."""

    async def scenario(cluster):
        await cluster.persister.initialize(KEY, 3, 5)
        cluster.remote.initialize(KEY, 3, 5)
        cluster.remote.read_state(KEY, 9)
        cluster.proof = asyncio.get_running_loop().create_future()
        check = asyncio.ensure_future(cluster.persister.read(KEY, 8))
        await asyncio.sleep(1)
        cluster.view.image, failed, cluster.proof = image(THERE), cluster.proof, None
        failed.set_exception(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
        with pytest.raises(KafkaError) as refused:
            await check
        assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH

    play(scenario, HERE)
