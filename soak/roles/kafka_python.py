"""The roles of clients that use kafka-python."""

from __future__ import annotations

import os
import sys
import time
from threading import Timer
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError, KafkaTimeoutError, ProducerFencedError
from kafka.structs import OffsetAndMetadata

from soak.roles.common import SECONDS, SESSION_MS, Draft, Offsets, Reader, Stop, Task, Transactions, Writer

BATCH = 50
#: how long a transaction may take, which no broker can keep waiting for ever
PATIENCE_SECONDS = 4 * SECONDS


def produce(task: Task, stop: Stop) -> None:
    """Send records as an idempotent producer, without waiting for answers. End if no record gets an outcome
    for long.
    """
    writer = Writer(task, task.recorder())
    producer = _producer(task, enable_idempotence=True)
    heard_at = time.monotonic()

    def hear(_: object) -> None:
        nonlocal heard_at
        heard_at = time.monotonic()

    while not stop:
        future = _send(producer, writer, writer.draft(task.topics))
        if future is not None:
            future.add_both(hear)
        if time.monotonic() - heard_at > PATIENCE_SECONDS:
            _give_up(writer, "kafka-python neither delivers a record nor fails it", PATIENCE_SECONDS)
        time.sleep(task.pause)
    producer.flush(SECONDS)


def transform(task: Task, stop: Stop) -> None:
    """Consume, transform and produce: one output for each input, and the offsets in the same transaction."""
    recorder = task.recorder()
    writer, reader, transactions = Writer(task, recorder), Reader(recorder), Transactions(recorder)
    producer = _producer(
        task, transactional_id=task.transactional_id, transaction_timeout_ms=task.transaction_timeout_ms
    )
    recorder.note("init")
    producer.init_transactions()
    recorder.note("inited")
    consumer = _subscribed(task, reader)
    while not stop:
        _poll(consumer, reader)
        why = "kafka-python waits for a step of a transaction"
        patience = Timer(PATIENCE_SECONDS, _give_up, [writer, why, PATIENCE_SECONDS])
        patience.daemon = True
        patience.start()
        if reader.done and not _process(task, producer, consumer, writer, reader, transactions):
            _rewind(consumer, reader)
        patience.cancel()
    consumer.close()
    producer.close(SECONDS)


def _process(
    task: Task,
    producer: KafkaProducer,
    consumer: KafkaConsumer,
    writer: Writer,
    reader: Reader,
    transactions: Transactions,
) -> bool:
    """Run one transaction, and return whether it was committed.

    Raises:
        KafkaError: the outcome is unknown.
    """
    number = transactions.begin()
    producer.begin_transaction()
    try:
        answers = [
            _send(producer, writer, writer.draft(task.outputs, number, source)) for source in reader.inputs
        ]
        offsets = reader.taken()
        transactions.offsets(task.group, offsets)
        producer.send_offsets_to_transaction(_offsets(offsets), consumer.group_metadata())
        # kafka-python 3.0 says that a transaction was committed whose records were refused, since the
        # coordinator had aborted it: it takes a new epoch and never asks for the end. On Apache Kafka, too.
        for answer in filter(None, answers):
            answer.get(SECONDS)
        transactions.end(commit=True)
        producer.commit_transaction()
    except ProducerFencedError as error:
        transactions.ended(commit=True, error=repr(error))
        raise
    except KafkaError:
        transactions.end(commit=False)
        producer.abort_transaction()
        transactions.ended(commit=False)
        return False
    transactions.ended(commit=True)
    return True


def consume(task: Task, stop: Stop) -> None:
    """Read as a member of a group, and commit at intervals."""
    reader = Reader(task.recorder())
    consumer = _subscribed(task, reader)
    due = time.monotonic()
    while not stop:
        _poll(consumer, reader)
        if reader.done and time.monotonic() > due:
            _commit(consumer, reader)
            due = time.monotonic() + 0.5
    _commit(consumer, reader)
    consumer.close()


def _producer(task: Task, **settings: Any) -> KafkaProducer:
    return KafkaProducer(
        bootstrap_servers=task.bootstrap,
        client_id=task.name,
        acks="all",
        linger_ms=2,
        delivery_timeout_ms=int(2 * SECONDS * 1000),
        request_timeout_ms=int(SECONDS * 1000),
        reconnect_backoff_max_ms=500,
        **settings,
    )


#: in the error of a producer that sends nothing any more
_FATAL = "Could not execute transactional request"


def _send(producer: KafkaProducer, writer: Writer, draft: Draft) -> Any:
    """Send a record. Return the future of the answer; None if the client did not send it."""
    topic, partition = draft.place
    try:
        future = producer.send(topic, draft.value, key=draft.key.encode(), partition=partition)
    except KafkaError as error:
        writer.failed(draft.id, repr(error))
        return None
    future.add_callback(lambda metadata: writer.acknowledged(draft.id, metadata.offset))
    future.add_errback(lambda error: _failed(writer, draft, error))
    return future


def _failed(writer: Writer, draft: Draft, error: Exception) -> None:
    """Note a failed send. End the process if the producer will send nothing more.

    An idempotent producer of kafka-python 3.0 waits forever when a batch in flight or its InitProducerId has
    timed out.
    """
    writer.failed(draft.id, repr(error))
    if _FATAL in str(error):
        _give_up(writer, "kafka-python fails every send when InitProducerId has timed out", SECONDS)
    if isinstance(error, KafkaTimeoutError):
        _give_up(writer, "kafka-python stops sending when a batch has timed out", 2 * SECONDS)


def _give_up(writer: Writer, why: str, seconds: float) -> None:
    """End the process, because some calls of kafka-python 3.0 have no timeout.

    It first notes the broker's answer to other requests. The checker reports a finding if the broker caused
    the wait.
    """
    writer.gave_up(why, seconds)
    print(why, file=sys.stderr, flush=True)
    os._exit(1)


class _Listener(ConsumerRebalanceListener):  # type: ignore[misc]
    """A rebalance listener that does not commit: kafka-python 3.0 cannot wait for an answer inside a
    listener.
    """

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def on_partitions_revoked(self, revoked: list[TopicPartition]) -> None:
        if revoked:
            self._reader.revoked((part.topic, part.partition) for part in revoked)

    def on_partitions_assigned(self, assigned: list[TopicPartition]) -> None:
        self._reader.assigned((part.topic, part.partition) for part in assigned)


def _subscribed(task: Task, reader: Reader) -> KafkaConsumer:
    consumer = KafkaConsumer(
        bootstrap_servers=task.bootstrap,
        client_id=task.name,
        group_id=task.group,
        isolation_level=task.isolation,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1000,
        request_timeout_ms=int(SECONDS * 1000),
        reconnect_backoff_max_ms=500,
    )
    consumer.subscribe(list(task.topics), listener=_Listener(reader))
    return consumer


def _poll(consumer: KafkaConsumer, reader: Reader) -> None:
    # Not shorter: a member that joins again because its metadata has changed loses its assignment when a
    # poll times out meanwhile, and stands still then (3.0.12).
    batches = consumer.poll(timeout_ms=2000, max_records=BATCH)
    reader.read(
        [
            (part.topic, part.partition, record.offset, record.value.decode())
            for part, records in batches.items()
            for record in records
        ]
    )


def _commit(consumer: KafkaConsumer, reader: Reader) -> None:
    if not reader.done:
        return
    offsets = reader.taken()
    reader.commit(offsets)
    try:
        consumer.commit(_offsets(offsets))
    except KafkaError as error:
        owned = [(part.topic, part.partition) for part in consumer.assignment()]
        reader.not_committed(offsets, repr(error), owned)
    else:
        reader.committed()


def _rewind(consumer: KafkaConsumer, reader: Reader) -> None:
    """Seek to the group's committed offsets after an aborted transaction."""
    offsets = {(part.topic, part.partition): consumer.committed(part) or 0 for part in consumer.assignment()}
    reader.moved(offsets)
    for (topic, partition), offset in offsets.items():
        consumer.seek(TopicPartition(topic, partition), offset)


def _offsets(offsets: Offsets) -> dict[TopicPartition, OffsetAndMetadata]:
    return {
        TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
        for (topic, partition), offset in offsets.items()
    }


ROLES = {"produce": produce, "transform": transform, "consume": consume}
