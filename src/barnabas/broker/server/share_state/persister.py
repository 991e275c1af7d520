"""The persister reads and writes the state of share partitions at the share coordinators of the cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar, cast

from barnabas.base.errors import ErrorCode, KafkaError, error_code
from barnabas.base.types import (
    NO_BROKER,
    SHARE_GROUP_STATE_TOPIC,
    BrokerId,
    LeaderEpoch,
    Offset,
    TopicId,
    TopicPartition,
)
from barnabas.broker.awaitables import MaybeAwaitable, resolve
from barnabas.broker.coordinator import (
    CoordinatorPosition,
    ShareCoordinator,
    SharePartitionKey,
    ShareState,
    StateBatch,
)
from barnabas.broker.coordinator.backoff import backoff_ms
from barnabas.broker.coordinator.share_state.persister import UNKNOWN_POSITION
from barnabas.broker.interbroker import BrokerClient, ChannelError, UnsupportedVersionError
from barnabas.broker.server.requests.confirmed import held_back
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    read_share_group_state_summary,
    write_share_group_state,
)

T = TypeVar("T")

#: the purpose of the channels to other brokers
_PURPOSE = "share state"
#: time limit of the retries of an operation, in seconds
RETRY_TIMEOUT = 30.0
#: the longest pause between two attempts, in milliseconds: a failover takes about a second
_MAX_PAUSE_MS = 1000
#: in seconds, how long a coordinator may take longer to answer than it waits for its followers
_GRACE = 5.0
#: number of partitions and batches from which a request is sent at once
_MAX_ELEMENTS = 2000
#: number of elements that a partition counts for in a read, because the response has its batches
_ELEMENTS_READ = 100

#: temporary errors, after which an operation is retried
_RETRIED = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.REQUEST_TIMED_OUT,
    }
)


class _Api(NamedTuple):
    """The message classes of one of the share coordinator's APIs."""

    request: type[Any]
    topic: type[Any]


_INITIALIZE = _Api(
    initialize_share_group_state.InitializeShareGroupStateRequest,
    initialize_share_group_state.InitializeStateData,
)
_READ = _Api(read_share_group_state.ReadShareGroupStateRequest, read_share_group_state.ReadStateData)
_WRITE = _Api(write_share_group_state.WriteShareGroupStateRequest, write_share_group_state.WriteStateData)
_DELETE = _Api(
    delete_share_group_state.DeleteShareGroupStateRequest, delete_share_group_state.DeleteStateData
)
_SUMMARY = _Api(
    read_share_group_state_summary.ReadShareGroupStateSummaryRequest,
    read_share_group_state_summary.ReadStateSummaryData,
)


class _Item(NamedTuple):
    """A share partition in the next request to a share coordinator."""

    key: SharePartitionKey
    #: the partition's part of the request
    data: Any
    #: gets the partition's part of the response, or a KafkaError
    result: asyncio.Future[Any]


class _Batch:
    """The next request to a share coordinator about share partitions of one group."""

    def __init__(self) -> None:
        self.items: list[_Item] = []
        self.elements = 0


class CoordinatorPersister:
    """Implements `barnabas.broker.coordinator.SharePersister` with the share coordinators on all brokers.

    In one turn of the event loop, the persister combines all operations of the same kind on one group into
    one request to a broker. Operations on one share partition run one after another, in the order of the
    calls. After a temporary error, the persister retries an operation for `RETRY_TIMEOUT` seconds.

    Args:
        view: settings of this broker, and its image (copy) of the cluster's metadata.
        local: share coordinator on this broker.
        peers: the other brokers.
        create: awaited with names of topics; creates the topics. It returns, by name, the errors of the
            topics that it could not create.
        confirm: called with a partition of `__share_group_state` that this broker leads. If another broker
            may lead it now, `confirm` returns a future that is done when the opposite is proven, or that
            raises KafkaError. If not, `confirm` returns None.
    """

    def __init__(
        self,
        view: BrokerView,
        local: ShareCoordinator,
        peers: BrokerClient,
        create: Callable[[Iterable[str]], Awaitable[dict[str, KafkaError]]],
        confirm: Callable[[TopicPartition], asyncio.Future[bool] | None],
    ) -> None:
        self._view = view
        self._local = local
        self._peers = peers
        self._create = create
        self._confirm = confirm
        self._batches: dict[tuple[BrokerId, _Api, str], _Batch] = {}
        #: by share partition: its lock, and the number of operations that hold the lock or wait for it
        self._turns: dict[SharePartitionKey, tuple[asyncio.Lock, int]] = {}

    async def initialize(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        start_offset: Offset,
        position: CoordinatorPosition = UNKNOWN_POSITION,
        replaced: Offset = -1,
    ) -> None:
        data = initialize_share_group_state.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            start_offset=start_offset,
            coordinator_epoch=position.epoch,
            replaced=replaced,
            coordinator_log_end=position.log_end,
        )
        local = partial(self._local.initialize, key, state_epoch, start_offset, position, replaced)
        async with self._turn(key):
            await self._carry_out(_INITIALIZE, key, data, local, _nothing)

    async def read(
        self, key: SharePartitionKey, leader_epoch: LeaderEpoch, *, retries: bool = True
    ) -> ShareState:
        data = read_share_group_state.PartitionData(partition=key.partition, leader_epoch=leader_epoch)

        def state(result: read_share_group_state.PartitionResult) -> ShareState:
            return ShareState(
                state_epoch=result.state_epoch,
                leader_epoch=leader_epoch,
                start_offset=result.start_offset,
                batches=tuple(
                    StateBatch(each.first_offset, each.last_offset, each.delivery_state, each.delivery_count)
                    for each in result.state_batches
                ),
                initialized_at=result.initialized_at,
            )

        async with self._turn(key):
            local = partial(self._local.read_state, key, leader_epoch)
            return await self._carry_out(_READ, key, data, local, state, retries)

    async def write(
        self,
        key: SharePartitionKey,
        state_epoch: int,
        leader_epoch: LeaderEpoch,
        start_offset: Offset,
        delivery_complete_count: int,
        batches: Sequence[StateBatch],
        initialized_at: Offset = -1,
    ) -> None:
        data = write_share_group_state.PartitionData(
            partition=key.partition,
            state_epoch=state_epoch,
            leader_epoch=leader_epoch,
            start_offset=start_offset,
            delivery_complete_count=delivery_complete_count,
            # These have the fields of the message's batches. Most writes are not sent.
            state_batches=cast(list[write_share_group_state.StateBatch], batches),
            initialized_at=initialized_at,
        )
        local = partial(
            self._local.write_state,
            key,
            state_epoch,
            leader_epoch,
            start_offset,
            delivery_complete_count,
            batches,
            initialized_at,
        )
        async with self._turn(key):
            await self._carry_out(_WRITE, key, data, local, _nothing)

    async def delete(self, key: SharePartitionKey, position: CoordinatorPosition = UNKNOWN_POSITION) -> None:
        data = delete_share_group_state.PartitionData(
            partition=key.partition,
            coordinator_epoch=position.epoch,
            coordinator_log_end=position.log_end,
        )
        local = partial(self._local.delete, key, position)
        async with self._turn(key):
            await self._carry_out(_DELETE, key, data, local, _nothing)

    async def summary(self, key: SharePartitionKey, leader_epoch: LeaderEpoch = -1) -> ShareState:
        data = read_share_group_state_summary.PartitionData(
            partition=key.partition, leader_epoch=leader_epoch
        )

        def state(result: read_share_group_state_summary.PartitionResult) -> ShareState:
            return ShareState(
                result.state_epoch,
                result.leader_epoch,
                result.start_offset,
                result.delivery_complete_count,
                initialized_at=result.initialized_at,
            )

        return await self._carry_out(_SUMMARY, key, data, partial(self._local.summary, key), state)

    # --- inside ---

    @asynccontextmanager
    async def _turn(self, key: SharePartitionKey) -> AsyncIterator[None]:
        lock, holders = self._turns.get(key) or (asyncio.Lock(), 0)
        self._turns[key] = lock, holders + 1
        try:
            async with lock:
                yield
        finally:
            _, holders = self._turns.pop(key)
            if holders > 1:
                self._turns[key] = lock, holders - 1

    async def _carry_out(
        self,
        api: _Api,
        key: SharePartitionKey,
        data: Any,
        local: Callable[[], MaybeAwaitable[T]],
        parse: Callable[[Any], T],
        retries: bool = True,
    ) -> T:
        """Execute an operation at the share partition's coordinator, with retries, and return its result.

        Args:
            api: message classes of the request to a coordinator on another broker.
            key: the share partition.
            data: the share partition's part of this request.
            local: called if this broker is the coordinator; executes the operation, and returns the result or
                an awaitable of it.
            parse: called if another broker is the coordinator, with the share partition's part of the
                response; returns the result.
            retries: whether to try again after a temporary error.

        Raises:
            KafkaError: the coordinator rejects the operation, or a temporary error is left after about
                `RETRY_TIMEOUT` seconds, or at once without `retries`.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + RETRY_TIMEOUT
        failures = 0
        while True:
            try:
                coordinator = await self._find(key)
                if coordinator == self._view.node_id:
                    return await resolve(self._ask_here(key, local))
                return parse(await self._ask(coordinator, api, key, data))
            except KafkaError as error:
                failures += 1
                pause = min(backoff_ms(failures), _MAX_PAUSE_MS) / 1000
                if not (retries and self._may_succeed(error, key)) or loop.time() + pause >= deadline:
                    raise
            await asyncio.sleep(pause)

    def _ask_here(self, key: SharePartitionKey, local: Callable[[], MaybeAwaitable[T]]) -> MaybeAwaitable[T]:
        """Execute an operation at the coordinator on this broker, which may be a former one (ADR 15).

        Without a proof, a former leader of the share partition could pass the check of its former coordinator
        on the same broker.
        """
        return held_back(self._confirm(self._partition(key)), local, ErrorCode.NOT_COORDINATOR)

    def _may_succeed(self, error: KafkaError, key: SharePartitionKey) -> bool:
        """Whether an operation may succeed if it is retried.

        After UNKNOWN_TOPIC_OR_PARTITION, a retry may succeed if this broker knows the topic.
        """
        if error.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            return key.topic_id in self._view.image.topic_names
        return error.code in _RETRIED

    async def _find(self, key: SharePartitionKey) -> BrokerId:
        """Return the coordinator of a share partition. Create the internal topic if it does not exist.

        Raises:
            KafkaError: COORDINATOR_NOT_AVAILABLE, there is no coordinator now.
        """
        if SHARE_GROUP_STATE_TOPIC not in self._view.image.topics:
            for error in (await self._create([SHARE_GROUP_STATE_TOPIC])).values():
                raise KafkaError(
                    ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    f"{SHARE_GROUP_STATE_TOPIC} cannot be created: {error.message}",
                )
        state = self._view.image.partition(self._partition(key))
        if state is None or state.leader == NO_BROKER:
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return state.leader

    def _partition(self, key: SharePartitionKey) -> TopicPartition:
        return TopicPartition(SHARE_GROUP_STATE_TOPIC, self._local.partition_for(str(key)))

    async def _ask(self, coordinator: BrokerId, api: _Api, key: SharePartitionKey, data: Any) -> Any:
        """Send a share partition's operation to another broker, and return that partition's result.

        The result is the element of the response for the share partition. Several calls in one turn of the
        event loop, for the same group, API and coordinator, share one request.

        Args:
            coordinator: broker to which the operation goes.
            api: messages of the operation.
            key: the share partition.
            data: the share partition's part of the request.

        Raises:
            KafkaError: the error in the response; NETWORK_EXCEPTION, there is no response;
                COORDINATOR_NOT_AVAILABLE, the response lacks the share partition; UNKNOWN_SERVER_ERROR, the
                request failed otherwise.
        """
        loop = asyncio.get_running_loop()
        purpose = coordinator, api, key.group
        batch = self._batches.get(purpose)
        if batch is None:
            batch = self._batches[purpose] = _Batch()
            loop.call_soon(self._send, purpose, batch)
        item = _Item(key, data, loop.create_future())
        batch.items.append(item)
        batch.elements += _ELEMENTS_READ if api is _READ else 1 + len(getattr(data, "state_batches", ()))
        if batch.elements >= _MAX_ELEMENTS:
            self._send(purpose, batch)
        result = await item.result
        if result.error_code:
            raise KafkaError(error_code(result.error_code), result.error_message)
        return result

    def _send(self, purpose: tuple[BrokerId, _Api, str], batch: _Batch) -> None:
        if self._batches.get(purpose) is not batch:
            return  # it was sent when it became large
        del self._batches[purpose]
        coordinator, api, group = purpose
        topics: dict[TopicId, Any] = {}
        for key, data, _ in batch.items:
            topics.setdefault(
                key.topic_id, api.topic(topic_id=key.topic_id, partitions=[])
            ).partitions.append(data)
        request = api.request(group_id=group, topics=list(topics.values()))
        timeout = self._view.config.share_coordinator_write_timeout_ms / 1000 + _GRACE
        answer = self._peers.channel(coordinator, _PURPOSE).submit(request, timeout_s=timeout)
        answer.add_done_callback(partial(self._answered, coordinator, batch))

    def _answered(self, coordinator: BrokerId, batch: _Batch, answer: asyncio.Future[Any]) -> None:
        error = None if answer.cancelled() else answer.exception()
        if error is None and not answer.cancelled():
            results = {
                (topic.topic_id, partition.partition): partition
                for topic in answer.result().results
                for partition in topic.partitions
            }
            for key, _, result in batch.items:
                found = results.get((key.topic_id, key.partition))
                if result.done():
                    continue
                if found is not None:
                    result.set_result(found)
                else:
                    result.set_exception(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "no answer"))
            return
        if isinstance(error, UnsupportedVersionError):
            # The peer did not know yet that the cluster uses share groups. Only a new connection learns it.
            self._peers.forget(coordinator, _PURPOSE)
        code = (
            ErrorCode.NETWORK_EXCEPTION if isinstance(error, ChannelError) else ErrorCode.UNKNOWN_SERVER_ERROR
        )
        for _, _, result in batch.items:
            if not result.done():
                result.set_exception(KafkaError(code, str(error)))


def _nothing(_result: Any) -> None:
    """Return None: the result of an operation that only changes state."""
