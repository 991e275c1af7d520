"""The roles of clients that use aiokafka."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import KafkaConnectionError, KafkaError, OutOfOrderSequenceNumber

from soak.roles.common import SECONDS, SESSION_MS, Draft, Offsets, Reader, Stop, Task, Transactions, Writer

BATCH = 50


async def _produce(task: Task, stop: Stop) -> None:
    """Send records as an idempotent producer, without waiting for answers.

    When a batch has timed out, aiokafka 0.14 continues with the next sequence. All later batches of the
    partition are then out of order, so this role ends and the soak starts another client.
    """
    writer = Writer(task, task.recorder())
    producer = await _started(lambda: _producer(task, enable_idempotence=True))
    waiting: set[asyncio.Future[Any]] = set()
    gaps = _Gaps()
    while not stop:
        gaps.check()
        draft = writer.draft(task.topics)
        sent = await _send(producer, writer, draft)
        if sent is not None:
            waiting.add(sent)
            sent.add_done_callback(waiting.discard)
            sent.add_done_callback(partial(gaps.note, draft.place))
        await asyncio.sleep(task.pause)
    if waiting:
        await asyncio.wait(waiting, timeout=SECONDS)


async def _transform(task: Task, stop: Stop) -> None:
    """Consume, transform and produce: one output for each input, and the offsets in the same transaction.

    aiokafka does not send the group's generation with the offsets (KIP-447). Only the transactional id
    excludes a second client. So one client runs at a time, and it takes the id before it reads. aiokafka
    rebalances in the background and does not request stable offsets, so this role delays a rebalance until no
    transaction is open.
    """
    recorder = task.recorder()
    writer, reader, transactions = Writer(task, recorder), Reader(recorder), Transactions(recorder)
    recorder.note("init")
    producer = await _started(
        lambda: _producer(
            task, transactional_id=task.transactional_id, transaction_timeout_ms=task.transaction_timeout_ms
        )
    )
    recorder.note("inited")
    at_work = asyncio.Lock()

    async def on_revoke(_: AIOKafkaConsumer) -> None:
        async with at_work:
            return

    consumer = await _subscribed(task, reader, on_revoke)
    while not stop:
        # not at work here: it may wait for an assignment, which waits for the end of work
        await _poll(consumer, reader)
        async with at_work:
            if reader.done and not await _process(task, producer, writer, reader, transactions):
                await _rewind(consumer, reader)
    await consumer.stop()
    await producer.stop()


async def _process(
    task: Task, producer: AIOKafkaProducer, writer: Writer, reader: Reader, transactions: Transactions
) -> bool:
    """Run one transaction, and return whether it was committed.

    Raises:
        KafkaError: the outcome is unknown.
    """
    number = transactions.begin()
    await producer.begin_transaction()
    try:
        sent = [
            await _send(producer, writer, writer.draft(task.outputs, number, source))
            for source in reader.inputs
        ]
        offsets = reader.taken()
        transactions.offsets(task.group, offsets)
        await producer.send_offsets_to_transaction(_offsets(offsets), task.group)
        await asyncio.gather(*(future for future in sent if future is not None))
    except KafkaError:
        transactions.end(commit=False)
        await producer.abort_transaction()
        transactions.ended(commit=False)
        return False
    transactions.end(commit=True)
    try:
        await producer.commit_transaction()
    except KafkaError as error:
        transactions.ended(commit=True, error=error)
        raise
    transactions.ended(commit=True)
    return True


async def _consume(task: Task, stop: Stop) -> None:
    """Read as a member of a group, and commit at intervals."""
    reader = Reader(task.recorder())
    consumer = await _subscribed(task, reader, lambda consumer: _commit(consumer, reader))
    due = time.monotonic()
    while not stop:
        await _poll(consumer, reader)
        if reader.done and time.monotonic() > due:
            await _commit(consumer, reader)
            due = time.monotonic() + 0.5
    await _commit(consumer, reader)
    await consumer.stop()


async def _started(make: Callable[[], Any]) -> Any:
    """Create and start a client. Try again while no broker is there, because aiokafka gives up at once."""
    while True:
        client = make()
        try:
            await client.start()
            return client
        except KafkaConnectionError:
            await client.stop()
            await asyncio.sleep(0.5)


def _producer(task: Task, **settings: Any) -> AIOKafkaProducer:
    return AIOKafkaProducer(
        bootstrap_servers=task.bootstrap,
        client_id=task.name,
        acks="all",
        linger_ms=2,
        request_timeout_ms=int(SECONDS * 1000),
        **settings,
    )


async def _send(producer: AIOKafkaProducer, writer: Writer, draft: Draft) -> asyncio.Future[Any] | None:
    def done(future: asyncio.Future[Any]) -> None:
        if future.cancelled():
            writer.failed(draft.id, "cancelled")
        elif (error := future.exception()) is not None:
            writer.failed(draft.id, repr(error))
        else:
            writer.acknowledged(draft.id, future.result().offset)

    topic, partition = draft.place
    try:
        future: asyncio.Future[Any] = await producer.send(
            topic, draft.value, key=draft.key.encode(), partition=partition
        )
    except KafkaError as error:
        writer.failed(draft.id, repr(error))
        return None
    future.add_done_callback(done)
    return future


class _Gaps:
    """The partitions in which a batch has timed out, so that later batches can be out of order."""

    def __init__(self) -> None:
        self._timed_out: set[tuple[str, int]] = set()
        self._is_stuck = False

    def note(self, partition: tuple[str, int], future: asyncio.Future[Any]) -> None:
        error = None if future.cancelled() else future.exception()
        if isinstance(error, OutOfOrderSequenceNumber):
            self._is_stuck = self._is_stuck or partition in self._timed_out
        elif error is not None:
            self._timed_out.add(partition)

    def check(self) -> None:
        """Raise RuntimeError if the broker will reject all further batches of some partition."""
        if self._is_stuck:
            raise RuntimeError("aiokafka leaves a gap in its sequences when a batch has timed out")


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, reader: Reader, on_revoke: Callable[[], Awaitable[None]]) -> None:
        self._reader = reader
        self._on_revoke = on_revoke

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        if revoked:
            await self._on_revoke()
            self._reader.revoked((part.topic, part.partition) for part in revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        self._reader.assigned((part.topic, part.partition) for part in assigned)


async def _subscribed(
    task: Task, reader: Reader, on_revoke: Callable[[AIOKafkaConsumer], Awaitable[None]]
) -> AIOKafkaConsumer:
    def make() -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=task.bootstrap,
            client_id=task.name,
            group_id=task.group,
            isolation_level=task.isolation,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=1000,
            request_timeout_ms=int(SECONDS * 1000),
        )

        listener = _Listener(reader, lambda: on_revoke(consumer))
        consumer.subscribe(list(task.topics), listener=listener)
        return consumer

    return await _started(make)


async def _poll(consumer: AIOKafkaConsumer, reader: Reader) -> None:
    batches = await consumer.getmany(timeout_ms=200, max_records=BATCH)
    reader.read(
        [
            (part.topic, part.partition, record.offset, record.value.decode())
            for part, records in batches.items()
            for record in records
        ]
    )


async def _commit(consumer: AIOKafkaConsumer, reader: Reader) -> None:
    if not reader.done:
        return
    offsets = reader.taken()
    reader.commit(offsets)
    try:
        await consumer.commit(_offsets(offsets))
    except (KafkaError, ValueError) as error:
        owned = [(part.topic, part.partition) for part in consumer.assignment()]
        reader.not_committed(offsets, repr(error), owned)
    else:
        reader.committed()


async def _rewind(consumer: AIOKafkaConsumer, reader: Reader) -> None:
    """Seek to the group's committed offsets after an aborted transaction."""
    offsets = {
        (part.topic, part.partition): await consumer.committed(part) or 0 for part in consumer.assignment()
    }
    reader.moved(offsets)
    for part, offset in _offsets(offsets).items():
        consumer.seek(part, offset)


def _offsets(offsets: Offsets) -> dict[TopicPartition, int]:
    return {TopicPartition(topic, partition): offset for (topic, partition), offset in offsets.items()}


def _run(role: Callable[[Task, Stop], Awaitable[None]]) -> Callable[[Task, Stop], None]:
    async def play(task: Task, stop: Stop) -> None:
        await role(task, stop)

    return lambda task, stop: asyncio.run(play(task, stop))


ROLES = {"produce": _run(_produce), "transform": _run(_transform), "consume": _run(_consume)}
