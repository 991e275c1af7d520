"""Answers Produce requests of the usual shape directly from their bytes (ADR 22).

A request of the usual shape has one topic, no transaction, acks 1 or all, and no tagged fields. This module
appends its batches with `Partition.append_plain`, and encodes the response itself.

`append_plain` returns None for a batch that it cannot append, for example because the log needs a new
segment. Then the handler of Produce appends this batch and all batches after it. The handler also executes
every request of another shape.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from barnabas.base.errors import KafkaError
from barnabas.base.types import INTERNAL_TOPICS
from barnabas.broker.awaitables import MaybeAwaitable, SecondPhase
from barnabas.broker.replication.acknowledgement import Acknowledgement, Appended
from barnabas.broker.server.producing.layout import BatchRange, Opening, opening_of
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS, Begun, Outcome
from barnabas.broker.server.requests.context import Chunks, Client, RequestContext
from barnabas.broker.server.requests.long_work import SLICE, LongWork
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.framing import encode_response, parse_counted
from barnabas.kafka.protocol.messages.produce import ProduceRequest, ProduceResponse
from barnabas.kafka.protocol.wire import Readable
from barnabas.kafka.security.acls import Access, Operation, ResourceType

if TYPE_CHECKING:
    from barnabas.broker.replication.manager import ReplicaManager
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.storage import AppendInfo

#: goes on with a request, some of whose batches are appended, the next of which was perhaps refused
GoOn: TypeAlias = Callable[
    [RequestContext, ProduceRequest, "Sequence[AppendInfo]", KafkaError | None],
    MaybeAwaitable[ProduceResponse | None],
]

#: makes the response to a request whose only batch was appended, but not acknowledged
Unacknowledged: TypeAlias = Callable[[RequestContext, ProduceRequest, KafkaError], ProduceResponse]

#: the number of batches between two checks of the time slice
_BATCHES_A_LOOK = 16
_KEY = ProduceRequest.api_key
_WRITE_TOPIC = (Operation.WRITE, ResourceType.TOPIC)


class DirectProduce:
    """Answers simple Produce requests from their bytes, without decoding them (`Direct`).

    A simple request has one topic, no transaction, acks 1 or all, and no tagged fields.

    Args:
        replicas: finds the partitions of this broker.
        long_work: provides the clock for the time limit of one turn of the event loop.
        view: provides the clock of the broker.
        go_on: the handler of Produce, for a request that this class has executed only in part. It is called
            with the context, the request, the results of the first batches, and the error of the batch after
            them (None without an error). It appends all batches that have neither a result nor an error. It
            returns the response, or an awaitable of the response.
        unacknowledged: called with the context, a request with one batch, and the error with which the wait
            for acknowledgements ended. It returns the response with this error.
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        long_work: LongWork,
        view: BrokerView,
        go_on: GoOn,
        unacknowledged: Unacknowledged,
    ) -> None:
        self._replicas = replicas
        self._long_work = long_work
        self._view = view
        self._go_on = go_on
        self._unacknowledged = unacknowledged

    def __call__(self, frame: Readable, client: Client, access: Access, began: float, /) -> Outcome:
        try:
            known = client.caches.get(_KEY)
            if isinstance(known, Opening) and known.opens(frame):
                opening = known
            else:
                found = self._opening_of(frame)
                if found is None:
                    return None
                client.caches[_KEY] = opening = found
            batches = opening.layout.batches(frame, opening.end)
        except (struct.error, IndexError):
            return None
        if batches is None or not (
            access.is_unrestricted or opening.name in access.known.get(_WRITE_TOPIC, ())
        ):
            return None
        partitions = self._replicas.partitions_of(opening.topic)
        now_ms = self._view.clock.now_ms()
        if len(batches) > 1:
            return self._append_each(frame, client, access, began, opening, batches, partitions, now_ms)
        return self._append_one(frame, client, access, opening, batches[0], partitions, now_ms)

    def _opening_of(self, frame: Readable) -> Opening | None:
        opening = opening_of(frame)
        if opening is None:
            return None
        for partition in self._replicas.partitions_of(opening.topic).values():
            opening.name = partition.topic_partition.topic
            return None if opening.name in INTERNAL_TOPICS else opening
        return None

    def _append_one(
        self,
        frame: Readable,
        client: Client,
        access: Access,
        opening: Opening,
        batch: BatchRange,
        partitions: Mapping[int, Partition],
        now_ms: int,
    ) -> Outcome:
        """Append the only batch of a request, and return the encoded response, or a future of it.

        The result is a future if in-sync replicas must still get the batch. Return None, without any effect,
        if the handler of Produce must execute the request. If the disk fails, return a `Begun`: the handler
        makes the response with the error.

        Args:
            frame: bytes of the request.
            client: connection of the request.
            access: permissions of the client.
            opening: the parsed first part of the request.
            batch: (partition index, start, end) of the batch in `frame`.
            partitions: the open partitions of the topic, by number.
            now_ms: present time, in milliseconds since 1970.
        """
        index, start, stop = batch
        partition = partitions.get(index)
        if partition is None:
            return None
        records = memoryview(frame)[start:stop]
        try:
            info = partition.append_plain(records, opening.acks, opening.layout.flags, now_ms)
        except KafkaError as error:
            return self._begun(frame, client, access, [], error)
        if info is None:
            return None
        reply = opening.reply(frame, (batch,), (info,))
        if partition.log.high_watermark > info[1] or partition.is_acknowledged(info[1], opening.acks):
            return reply
        answer: SecondPhase[Chunks] = SecondPhase()
        chunks: Chunks = [reply]
        fail = partial(self._fail, frame, client, chunks)
        waiting = [Appended(partition, info[1], partition.leader_epoch, fail)]
        Acknowledgement(waiting, opening.acks, chunks).wait(opening.timeout_ms, answer)
        return answer

    def _fail(self, frame: Readable, client: Client, chunks: Chunks, error: KafkaError) -> None:
        """Replace the reply in `chunks` by the reply with the error of the request's only batch."""
        header, request, _ = parse_counted(frame, DIRECT_ELEMENTS)
        assert isinstance(request, ProduceRequest)
        response = self._unacknowledged(RequestContext(header, client), request, error)
        chunks[:] = encode_response(header, response)

    def _append_each(
        self,
        frame: Readable,
        client: Client,
        access: Access,
        began: float,
        opening: Opening,
        batches: Sequence[BatchRange],
        partitions: Mapping[int, Partition],
        now_ms: int,
    ) -> Outcome:
        """Append the batches of a request, in their order.

        Stop before a batch that `Partition.append_plain` does not append, at a batch with an error, and at
        the end of the time slice.

        Return the encoded response if all batches were appended and need no further acknowledgement. Return
        None, without any effect, if the handler of Produce must execute the whole request. In all other cases
        return a `Begun`: the handler appends the batches that are left, and waits for acknowledgements.

        Args:
            frame: bytes of the request.
            client: connection of the request.
            access: permissions of the client.
            began: time at which the request began, by the clock of `LongWork`, in seconds.
            opening: the parsed first part of the request.
            batches: (partition index, start, end) of each batch in `frame`.
            partitions: the open partitions of the topic, by number.
            now_ms: present time, in milliseconds since 1970.
        """
        acks, flags = opening.acks, opening.layout.flags
        view = memoryview(frame)
        appended: list[AppendInfo] = []
        failure = None
        is_acknowledged = True
        left = _BATCHES_A_LOOK
        for index, start, stop in batches:
            if not left:
                left = _BATCHES_A_LOOK
                if self._long_work.now() >= began + SLICE:
                    break
            left -= 1
            partition = partitions.get(index)
            if partition is None:
                break
            try:
                info = partition.append_plain(view[start:stop], acks, flags, now_ms)
            except KafkaError as error:
                failure = error
                break
            if info is None:
                break
            appended.append(info)
            log = partition.log
            if log.high_watermark < log.log_end_offset and not partition.is_acknowledged(info[1], acks):
                is_acknowledged = False
        if is_acknowledged and len(appended) == len(batches):
            return opening.reply(frame, batches, appended)
        if not appended and failure is None:
            return None
        return self._begun(frame, client, access, appended, failure)

    def _begun(
        self,
        frame: Readable,
        client: Client,
        access: Access,
        appended: Sequence[AppendInfo],
        failure: KafkaError | None,
    ) -> Begun:
        """Decode a request, and pass it to the handler of Produce, which appends the batches that are left.

        Return the decoded request with the handler's result.

        Args:
            frame: bytes of the request.
            client: connection of the request.
            access: permissions of the client.
            appended: results of the request's first batches, which are already in the log.
            failure: error of the batch after these; None without an error.
        """
        header, request, _ = parse_counted(frame, DIRECT_ELEMENTS)
        assert isinstance(request, ProduceRequest)
        context = RequestContext(header, client)
        context.access = access
        return Begun(header, context, request, self._go_on(context, request, appended, failure))
