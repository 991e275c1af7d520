"""Produce v3-13: appends record batches to partitions that this broker leads.

The broker advertises versions from v0, because librdkafka otherwise stops compressing (its issue 4956). As in
Apache Kafka 4, the broker rejects versions below v3. A response can have errors of single records (KIP-467).
From v10 on, it names the new leaders of rejected partitions (KIP-951). From v13 on, requests name topics by
their ids (KIP-516). Before a transaction's first batch in a partition, the broker asks the transaction
coordinator whether the transaction contains the partition (KIP-98). From v12 on the coordinator adds the
partition if it is missing (KIP-890).
"""

from __future__ import annotations

from collections.abc import Awaitable, Generator, Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import partial
from itertools import dropwhile
from typing import NamedTuple, TypeAlias

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import FIRST_BROKER_PRODUCER_ID, INTERNAL_TOPICS, Buffer, TopicKey
from barnabas.broker.awaitables import MaybeAwaitable, SecondPhase, is_awaitable, resolve
from barnabas.broker.replication.acknowledgement import Acknowledgement, Appended
from barnabas.broker.replication.manager import ReplicaManager
from barnabas.broker.replication.partition import ACKS_ALL, Partition
from barnabas.broker.server.producing.direct import DirectProduce
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS, handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.long_work import SLICE, LongWork
from barnabas.broker.server.requests.needs import TransactionalId, each_topic
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.leaders import Leaders
from barnabas.broker.server.transactions.produce import LastMarkers, Refusals, ended, last_markers, refusals
from barnabas.broker.server.transactions.verification import TransactionVerifier
from barnabas.broker.storage import AppendInfo, InvalidRecords, LongValidation, Origin
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from barnabas.kafka.records.batch import COMPRESSION_MASK, TRANSACTIONAL_FLAG, low_attributes, producer_id_of
from barnabas.kafka.records.compression import Compression
from barnabas.kafka.security.acls import Operation


@dataclass(frozen=True, slots=True)
class Ports:
    """The parts of the broker that this module's handler uses."""

    replicas: ReplicaManager
    verifier: TransactionVerifier
    long_work: LongWork
    view: BrokerView


#: the response that a batch's result belongs to, and the name or id of the batch's topic
_Place: TypeAlias = tuple[Ports, RequestContext, ProduceResponse, TopicKey]
#: the client id that Kafka lets write to internal topics
ADMIN_CLIENT_ID = "__admin_client"
#: the first version in which a producer may send zstd (KIP-110)
ZSTD_SINCE = 7
#: the first version whose response names the leaders of rejected partitions
LEADERS_SINCE = 10
#: largest number of records with errors in a response
MAX_RECORD_ERRORS = 1000
_ACKS = (0, 1, ACKS_ALL)
#: Errors of batches that arrived before the partition or its leader was ready, and that the client sends
#: again. The value is the error with which the partition then rejects the producer's following batches.
_TOO_EARLY = {
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_TOPIC_ID: ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
#: the number of batches between two checks of the time slice
_BATCHES_A_LOOK = 16
_NO_REFUSALS: Refusals = {}
_NO_PARTITIONS: Mapping[int, Partition] = {}


def _failed(request: ProduceRequest, error: KafkaError) -> ProduceResponse:
    if request.acks == 0:
        raise error  # there is no reply to put it in: the connection is closed
    response = ProduceResponse()
    for topic in request.topic_data:
        results = [PartitionProduceResponse(index=data.index) for data in topic.partition_data]
        for result in results:
            _fail(result, error)
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
        )
    return response


def _direct(ports: Ports) -> DirectProduce:
    return DirectProduce(
        ports.replicas, ports.long_work, ports.view, partial(_go_on, ports), partial(_unacknowledged, ports)
    )


@handles(
    ProduceRequest,
    needs=[TransactionalId(Operation.WRITE), each_topic(Operation.WRITE, "topic_data", "responses")],
    advertised_from=0,
    on_error=_failed,
    pieces=[Pieces("topic_data.partition_data", "responses.partition_responses", size=DIRECT_ELEMENTS)],
    unconfirmed="the in-sync replicas commit it",
    direct=_direct,
)
def produce(
    ports: Ports, context: RequestContext, request: ProduceRequest
) -> MaybeAwaitable[ProduceResponse | None] | SecondPhase[ProduceResponse]:
    if request.transactional_id is None:
        return _append_all(ports, context, request, _NO_REFUSALS, ProduceResponse(), [], [])
    refused = refusals(ports.replicas, ports.verifier, request, context.api_version)
    if is_awaitable(refused):
        return _produce_later(ports, context, request, refused)
    return _append_all(ports, context, request, refused, ProduceResponse(), [], [])


async def _produce_later(
    ports: Ports, context: RequestContext, request: ProduceRequest, refused: Awaitable[Refusals]
) -> ProduceResponse | None:
    return await resolve(_append_all(ports, context, request, await refused, ProduceResponse(), [], []))


def _append_all(
    ports: Ports,
    context: RequestContext,
    request: ProduceRequest,
    refused: Refusals,
    response: ProduceResponse,
    results: list[PartitionProduceResponse],
    waiting: list[Appended | _Unvalidated],
) -> MaybeAwaitable[ProduceResponse | None] | SecondPhase[ProduceResponse]:
    """Append the batches of a request, and return the response; None with acks=0.

    If the response needs a wait, return an awaitable of it. The awaitable appends the rest of a long request,
    has a thread validate batches, or waits for acknowledgements.

    Args:
        ports: the parts of the broker.
        context: context of the request.
        request: the request.
        refused: errors of the batches that must not be appended, by topic name (or id) and partition number.
        response: gets the results of all topics.
        results: results of the first topic's batches that are already appended; empty if there are none.
        waiting: the batches in `results` that still need acknowledgements. This function adds the other
            batches that need acknowledgements, or that a thread must validate.
    """
    slices = _append_in_slices(ports, context, request, refused, response, results, waiting)
    rest = next(slices, None)
    if rest is not None:
        return _append_rest(ports, context, request, slices, rest, response, waiting)
    if not waiting and request.acks:
        return response
    return _appended(ports, context, request, response, waiting)


async def _append_rest(
    ports: Ports,
    context: RequestContext,
    request: ProduceRequest,
    slices: Generator[_Delayed, Refusals, None],
    rest: _Delayed | None,
    response: ProduceResponse,
    waiting: list[Appended | _Unvalidated],
) -> ProduceResponse | None:
    while rest is not None:
        await ports.long_work.next_slice()
        refused = await _refused_later(ports, context, rest)
        try:
            rest = slices.send(refused)
        except StopIteration:
            rest = None
    return await resolve(_appended(ports, context, request, response, waiting))


class _Delayed(NamedTuple):
    """Batches that wait after the check of their transaction. `_refused_later` checks it again."""

    #: the request with these batches only
    request: ProduceRequest
    markers: LastMarkers


def _delayed(ports: Ports, context: RequestContext, request: ProduceRequest) -> _Delayed:
    return _Delayed(request, last_markers(ports.replicas, request, context.api_version))


async def _refused_later(ports: Ports, context: RequestContext, delayed: _Delayed) -> Refusals:
    """Return the errors of delayed batches. Their transaction may have ended, and the next one begun."""
    request, markers = delayed
    if request.transactional_id is None:
        return _NO_REFUSALS
    refused = await resolve(refusals(ports.replicas, ports.verifier, request, context.api_version))
    return refused | ended(markers)


def _append_in_slices(
    ports: Ports,
    context: RequestContext,
    request: ProduceRequest,
    refused: Refusals,
    response: ProduceResponse,
    results: list[PartitionProduceResponse],
    waiting: list[Appended | _Unvalidated],
) -> Generator[_Delayed, Refusals, None]:
    """Append the batches of a request, and add the results to `response` and `waiting`.

    After each `SLICE` seconds, the generator yields the batches that are still to be appended. The caller
    must then send a new `refused` for these batches to the generator.

    Args:
        ports: the parts of the broker.
        context: context of the request.
        request: the request.
        refused: errors of the batches that must not be appended, by topic name (or id) and partition number.
            The function uses these errors only until the first yield.
        response: gets the results of all topics.
        results: results of the first topic's batches that are already appended. The function adds the
            topic's other results to this list.
        waiting: gets the batches that need acknowledgements, or that a thread must validate.
    """
    now, clock = ports.long_work.now, ports.view.clock
    end = now() + SLICE
    now_ms = clock.now_ms()
    left = _BATCHES_A_LOOK
    acks = request.acks
    flags = _plain_flags(context, request)
    for topic in request.topic_data:
        name = topic.name or topic.topic_id
        partitions = _plain_partitions(ports, request, name)
        place = ports, context, response, name
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=results)
        )
        for data in topic.partition_data:
            if not left:
                left = _BATCHES_A_LOOK
                if now() >= end:
                    refused = yield _delayed(ports, context, _from(request, topic, data))
                    end = now() + SLICE
                    now_ms = clock.now_ms()
            left -= 1
            index = data.index
            partition = partitions.get(index)
            info = None
            try:
                if partition is not None and data.records and not (refused and (name, index) in refused):
                    info = partition.append_plain(data.records, acks, flags, now_ms)
                if partition is None or info is None:
                    partition, info = _append(ports, context, request, topic, data, refused)
            except KafkaError as error:
                results.append(_refusal(place, data, error))
                continue
            except LongValidation:
                result = PartitionProduceResponse(index=index)
                results.append(result)
                alone = _delayed(ports, context, _about(request, [_part(topic, [data])]))
                waiting.append(_Unvalidated(ports.replicas.find(name, index), data, alone, result, place))
                continue
            results.append(_accepted(index, partition, info, acks, waiting, place))
        results = []


def _accepted(
    index: int,
    partition: Partition,
    info: AppendInfo,
    acks: int,
    waiting: list[Appended | _Unvalidated],
    place: _Place,
) -> PartitionProduceResponse:
    """Return the result of an appended batch. Add the batch to `waiting` if it needs acknowledgements.

    Args:
        index: number of the partition.
        partition: the partition.
        info: result of the append.
        acks: acks that the request requires.
        waiting: list of the batches that need acknowledgements.
        place: the response that gets the result.
    """
    result = PartitionProduceResponse(
        index=index,
        base_offset=info.base_offset,
        log_append_time_ms=info.log_append_time_ms,
        log_start_offset=info.log_start_offset,
    )
    if not partition.is_acknowledged(info.last_offset, acks):
        fail = partial(_fail_in, place, result)
        waiting.append(Appended(partition, info.last_offset, partition.leader_epoch, fail))
    return result


def _plain_partitions(ports: Ports, request: ProduceRequest, topic: TopicKey) -> Mapping[int, Partition]:
    """Return the open partitions of a topic by number.

    Return no partitions if all batches need the checks of `_checked`.
    """
    partitions = ports.replicas.partitions_of(topic)
    for partition in partitions.values():
        if request.acks not in _ACKS or partition.topic_partition.topic in INTERNAL_TOPICS:
            return _NO_PARTITIONS
        break
    return partitions


def _plain_flags(context: RequestContext, request: ProduceRequest) -> int:
    """Return the bits that the attributes of a batch may have without the checks of `_checked`."""
    codecs = COMPRESSION_MASK if context.api_version >= ZSTD_SINCE else 0
    return codecs if request.transactional_id is None else codecs | TRANSACTIONAL_FLAG


def _from(request: ProduceRequest, topic: TopicProduceData, data: PartitionProduceData) -> ProduceRequest:
    """Return the rest of the request, from the batch `data` of `topic` on."""
    begun, *later = dropwhile(lambda each: each is not topic, request.topic_data)
    left = dropwhile(lambda each: each is not data, begun.partition_data)
    return _about(request, [_part(topic, left), *later])


def _about(request: ProduceRequest, topics: list[TopicProduceData]) -> ProduceRequest:
    changed = copy(request)
    changed.topic_data = topics
    return changed


def _part(topic: TopicProduceData, data: Iterable[PartitionProduceData]) -> TopicProduceData:
    return TopicProduceData(name=topic.name, topic_id=topic.topic_id, partition_data=list(data))


def _go_on(
    ports: Ports,
    context: RequestContext,
    request: ProduceRequest,
    appended: Sequence[AppendInfo],
    failure: KafkaError | None,
) -> MaybeAwaitable[ProduceResponse | None] | SecondPhase[ProduceResponse]:
    """Append the batches of a request that `DirectProduce` has not appended yet.

    Return the response to the whole request, or an awaitable of it; None with acks=0.

    Args:
        ports: the parts of the broker.
        context: context of the request.
        request: the whole request.
        appended: results of the batches that `DirectProduce` has appended: the first batches of the request.
        failure: the error of the next batch, if the partition rejected this batch.
    """
    (topic,) = request.topic_data
    name = topic.name or topic.topic_id
    response = ProduceResponse()
    place = ports, context, response, name
    waiting: list[Appended | _Unvalidated] = []
    batches = iter(topic.partition_data)
    results = [
        _accepted(data.index, ports.replicas.find(name, data.index), info, request.acks, waiting, place)
        for info, data in zip(appended, batches, strict=False)
    ]
    if failure is not None:
        results.append(_refusal(place, next(batches), failure))
    rest = _about(request, [_part(topic, batches)])
    return _append_all(ports, context, rest, _NO_REFUSALS, response, results, waiting)


def _unacknowledged(
    ports: Ports, context: RequestContext, request: ProduceRequest, error: KafkaError
) -> ProduceResponse:
    """Return the response to a request whose only batch was appended, but got `error` as acknowledgement."""
    response = _failed(request, error)
    (topic,) = response.responses
    (result,) = topic.partition_responses
    _name_leader((ports, context, response, topic.name or topic.topic_id), result)
    return response


def _appended(
    ports: Ports,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    waiting: list[Appended | _Unvalidated],
) -> MaybeAwaitable[ProduceResponse | None] | SecondPhase[ProduceResponse]:
    appended = [item for item in waiting if isinstance(item, Appended)]
    if len(appended) == len(waiting):
        return _answer(context, request, response, appended)
    unvalidated = [item for item in waiting if isinstance(item, _Unvalidated)]
    return _validate_and_append(ports, context, request, response, unvalidated, appended)


def _answer(
    context: RequestContext, request: ProduceRequest, response: ProduceResponse, waiting: list[Appended]
) -> ProduceResponse | SecondPhase[ProduceResponse] | None:
    """Return the response, or a future of it that waits for the acks. Return None for acks=0.

    With acks=0, close the connection if a batch failed.

    Args:
        context: context of the request.
        request: the request.
        response: the response, with the results of all batches.
        waiting: the batches that need acknowledgements.
    """
    acks = request.acks
    if acks == 0:
        _close_on_error(context, response)
        return None
    if waiting:
        answer: SecondPhase[ProduceResponse] = SecondPhase()
        Acknowledgement(waiting, acks, response).wait(request.timeout_ms, answer)
        return answer
    return response


class _Unvalidated(NamedTuple):
    """A batch that a thread must validate, because the validation would block the event loop."""

    partition: Partition
    data: PartitionProduceData
    delayed: _Delayed
    #: the partition's part of the response
    result: PartitionProduceResponse
    place: _Place


async def _validate_and_append(
    ports: Ports,
    context: RequestContext,
    request: ProduceRequest,
    response: ProduceResponse,
    unvalidated: list[_Unvalidated],
    waiting: list[Appended],
) -> ProduceResponse | None:
    for partition, data, delayed, result, place in unvalidated:
        records = data.records or b""
        try:
            valid = await ports.long_work.validate(records, partition.log.config, ports.view.clock.now_ms())
            if refused := await _refused_later(ports, context, delayed):
                (refusal,) = refused.values()
                raise _noted(partition, records, refusal)
            appended = partition.append(records, request.acks, Origin.CLIENT, valid)
        except KafkaError as error:
            _fail_in(place, result, error)
            continue
        result.base_offset = appended.base_offset
        result.log_append_time_ms = appended.log_append_time_ms
        result.log_start_offset = appended.log_start_offset
        if not partition.is_acknowledged(appended.last_offset, request.acks):
            fail = partial(_fail_in, place, result)
            waiting.append(Appended(partition, appended.last_offset, partition.leader_epoch, fail))
    return await resolve(_answer(context, request, response, waiting))


def _noted(partition: Partition, records: Buffer | None, refusal: KafkaError) -> KafkaError:
    """Return `refusal`, the error of a rejected batch.

    If the client will retry the batch, first record the error in the partition. So the partition also rejects
    the producer's later batches, which would be out of order before the retry. If `records`, the bytes of the
    batch, is None or empty, record nothing.
    """
    if refusal.code.retriable and records:
        partition.note_rejected(records, refusal.code)
    return refusal


def _append(
    ports: Ports,
    context: RequestContext,
    request: ProduceRequest,
    topic: TopicProduceData,
    data: PartitionProduceData,
    refused: Refusals,
) -> tuple[Partition, AppendInfo]:
    """Check and append a batch. Return its partition and the result of the append.

    The function checks the acks, topic, compression, transaction and producer id of the batch (`_checked`).
    It does not wait for acknowledgements.

    Args:
        ports: the parts of the broker.
        context: context of the request.
        request: the request.
        topic: topic of the batch in the request.
        data: the batch in the request.
        refused: errors of the batches that must not be appended, by topic name (or id) and partition number.

    Raises:
        LongValidation: the validation would take too long for the event loop; nothing has changed.
        KafkaError: the batch is rejected.
    """
    name = topic.name or topic.topic_id
    partition = ports.replicas.find(name, data.index)
    if refused and (name, data.index) in refused:
        raise _noted(partition, data.records, refused[name, data.index])
    records = _checked(context, request, partition, data.records)
    return partition, partition.append(records, request.acks, Origin.CLIENT)


def _refusal(place: _Place, data: PartitionProduceData, error: KafkaError) -> PartitionProduceResponse:
    ports, _, _, name = place
    if error.code in _TOO_EARLY and data.records:
        ports.replicas.note_rejected(name, data.index, data.records, _TOO_EARLY[error.code])
    failed = PartitionProduceResponse(index=data.index)
    _fail_in(place, failed, error)
    return failed


def _checked(
    context: RequestContext, request: ProduceRequest, partition: Partition, records: Buffer | None
) -> Buffer:
    """Return `records` after the checks that do not decode them.

    Raises:
        KafkaError: the request's acks, topic, compression, transaction or producer id is not allowed, or
            there are no records.
    """
    if request.acks not in _ACKS:
        raise KafkaError(ErrorCode.INVALID_REQUIRED_ACKS)
    if partition.topic_partition.topic in INTERNAL_TOPICS and context.client_id != ADMIN_CLIENT_ID:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "clients may not write to internal topics")
    if not records:
        raise KafkaError(ErrorCode.INVALID_RECORD, "a partition without records")
    attributes = low_attributes(records)
    if attributes & TRANSACTIONAL_FLAG and request.transactional_id is None:
        # Let in, it would hold back the last stable offset for ever, since nothing ends it.
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "a transaction's batch without a transactional id",
        )
    if producer_id_of(records) >= FIRST_BROKER_PRODUCER_ID and not context.access.on_cluster(
        Operation.CLUSTER_ACTION
    ):
        raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "only brokers use this producer id")
    if context.api_version < ZSTD_SINCE and attributes & COMPRESSION_MASK == Compression.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"zstd requires Produce v{ZSTD_SINCE} or later"
        )
    return records


def _fail(result: PartitionProduceResponse, error: KafkaError, context: RequestContext | None = None) -> None:
    result.error_code = error.code
    result.error_message = error.message
    result.base_offset = result.log_append_time_ms = result.log_start_offset = -1
    if isinstance(error, InvalidRecords) and context is not None:
        named = error.record_errors[: max(0, MAX_RECORD_ERRORS - context.reported_errors)]
        context.reported_errors += len(named)
        result.record_errors = [
            BatchIndexAndErrorMessage(
                batch_index=record.batch_index, batch_index_error_message=record.message
            )
            for record in named
        ]


def _fail_in(place: _Place, result: PartitionProduceResponse, error: KafkaError) -> None:
    """Put the error of a batch into `result`. If another broker leads, also name it in the response."""
    _, context, _, _ = place
    _fail(result, error, context)
    _name_leader(place, result)


def _name_leader(place: _Place, result: PartitionProduceResponse) -> None:
    """Name the leader after NOT_LEADER_OR_FOLLOWER, if this broker knows the leader.

    Args:
        place: the response, which gets the leader's address.
        result: the batch's part of the response, which has the error already. It gets the leader.
    """
    ports, context, response, name = place
    if result.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER and context.api_version >= LEADERS_SINCE:
        leaders = Leaders(ports.view, context.listener, response.node_endpoints)
        result.current_leader = leaders.after(ErrorCode.NOT_LEADER_OR_FOLLOWER, name, result.index)


def _close_on_error(context: RequestContext, response: ProduceResponse) -> None:
    """Close the connection if a batch of a request with acks=0 has failed.

    The client expects no response, so there is no other way to report the error.
    """
    for topic in response.responses:
        for partition in topic.partition_responses:
            if partition.error_code:
                name = topic.name or topic.topic_id.hex()
                context.connection.close(
                    f"a produce with acks=0 to {name!r}-{partition.index} failed: {partition.error_message}"
                )
                return
