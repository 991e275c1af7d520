"""The roles of clients that use confluent-kafka (librdkafka)."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.client.settings import ASK_AGAIN, KEEP_BROKERS
from soak.plan import RECYCLED
from soak.roles.common import (
    SECONDS,
    SESSION_MS,
    Draft,
    Offsets,
    Place,
    Reader,
    Stop,
    Task,
    Transactions,
    Writer,
    identity,
)
from soak.roles.kept_epochs import Kept, KeptEpochs
from soak.roles.metadata import newest_epochs
from soak.roles.sharing import work
from soak.roles.topics import keep, recycle

POLL_SECONDS = 0.2
BATCH = 50
#: With messages that time out, librdkafka begins a new epoch and sends again there what it has had no answer
#: for yet: no broker can see that it repeats. So they get more time than a fault lasts.
IDEMPOTENT = {"enable.idempotence": True, "message.timeout.ms": 300_000}
#: the topic was deleted a moment ago, and its client knows
NO_TOPIC = (
    KafkaError._UNKNOWN_TOPIC,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError.UNKNOWN_TOPIC_OR_PART,
)


def produce(task: Task, stop: Stop) -> None:
    """Send records one at a time as an idempotent producer with acks=all, without waiting for answers. End if
    the producer keeps the leader epochs of a deleted topic.
    """
    writer = Writer(task, task.recorder())
    epochs = KeptEpochs(RECYCLED, lambda: newest_epochs(task.bootstrap, RECYCLED))
    producer = Producer(_producer(task) | IDEMPOTENT | epochs.settings)
    while not stop:
        _send(producer, writer, writer.draft(task.topics))
        kept = epochs.look(writer.heard_at) if RECYCLED in task.topics else []
        if kept:
            _give_up(writer, kept)
        time.sleep(task.pause)
    producer.flush(SECONDS)


def newcomers(task: Task, stop: Stop) -> None:
    """Create topics, by the admin client or by the first record, and write to them at once."""
    recorder = task.recorder()
    writer = Writer(task, recorder)
    producer = Producer(_producer(task) | IDEMPOTENT)
    admin = AdminClient({"bootstrap.servers": task.bootstrap, "log_level": 0})
    number = 0
    while not stop:
        number += 1
        topic = {f"{task.name}-{number}".replace(".", "-"): 2}
        if number % 2:
            with suppress(KafkaException):  # lost in a restart: then the first record makes it
                for made in admin.create_topics([NewTopic(name, 2, -1) for name in topic]).values():
                    made.result(SECONDS)
        for _ in range(20):
            _send(producer, writer, writer.draft(topic))
            time.sleep(task.pause)
        producer.flush(SECONDS)
        producer.poll(writer.random.uniform(0, 2))


def transact(task: Task, stop: Stop) -> None:
    """Run transactions over several partitions. Abort some of them, and leave some open for a while."""
    recorder = task.recorder()
    writer, transactions = Writer(task, recorder), Transactions(recorder)
    producer = _transactional(task, recorder)
    while not stop:
        number = transactions.begin()
        producer.begin_transaction()
        for _ in range(writer.random.randint(1, 12)):
            draft = writer.draft(task.topics, number)
            _send(producer, writer, draft)
        if writer.random.random() < 0.1:
            time.sleep(writer.random.random())
        _end(producer, transactions, commit=writer.random.random() < 0.8)
        time.sleep(task.pause)


def transform(task: Task, stop: Stop) -> None:
    """Consume, transform and produce: one output for each input, and the offsets in the same transaction."""
    recorder = task.recorder()
    writer, reader, transactions = Writer(task, recorder), Reader(recorder), Transactions(recorder)
    producer = _transactional(task, recorder)
    consumer = _subscribed(task, reader)
    try:
        while not stop:
            if not _poll(consumer, reader):
                continue
            number = transactions.begin()
            producer.begin_transaction()
            for source in reader.inputs:
                _send(producer, writer, writer.draft(task.outputs, number, source))
            offsets = reader.taken()
            transactions.offsets(task.group, offsets)
            try:
                producer.send_offsets_to_transaction(
                    _offsets(offsets), consumer.consumer_group_metadata(), SECONDS
                )
                committed = _end(producer, transactions, commit=True)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                _abort(producer, transactions)
                committed = False
            if not committed:
                _rewind(consumer, reader)
    finally:
        consumer.close()


def consume(task: Task, stop: Stop) -> None:
    """Read as a member of a group, and commit at intervals."""
    reader = Reader(task.recorder())
    consumer = _subscribed(task, reader)
    due = time.monotonic()
    try:
        while not stop:
            _poll(consumer, reader)
            if reader.done and time.monotonic() > due:
                _commit(consumer, reader)
                due = time.monotonic() + 0.5
        _commit(consumer, reader)
    finally:
        consumer.close()


def _give_up(writer: Writer, kept: list[Kept]) -> None:
    """End the process. The records in its queue would only time out."""
    why = "librdkafka keeps the leader epochs of a deleted topic"
    writer.gave_up(why, time.monotonic() - writer.heard_at, kept=[[RECYCLED, *each] for each in kept])
    print(f"{why}: {kept}", file=sys.stderr, flush=True)
    os._exit(1)


def _producer(task: Task) -> dict[str, Any]:
    return {
        "bootstrap.servers": task.bootstrap,
        "client.id": task.name,
        "acks": "all",
        "linger.ms": 2,
        # Shorter than a pause of the broker: what it has not answered then is sent again, and it gets both.
        "request.timeout.ms": 3000,
        "socket.timeout.ms": 4000,
        "reconnect.backoff.max.ms": 500,
        **({"batch.num.messages": task.batch} if task.batch else {}),
        **KEEP_BROKERS,
        "log_level": 0,
    }


def _transactional(task: Task, recorder: Any) -> Producer:
    producer = Producer(
        _producer(task)
        | {
            "transactional.id": task.transactional_id,
            "transaction.timeout.ms": task.transaction_timeout_ms,
            **ASK_AGAIN,
        }
    )
    recorder.note("init")
    while True:
        try:
            producer.init_transactions(SECONDS)
            recorder.note("inited")
            return producer
        except KafkaException as error:
            if not error.args[0].retriable():
                raise


def _noted(writer: Writer, draft: Draft) -> Any:
    def done(error: KafkaError | None, message: Message) -> None:
        if error is None:
            writer.acknowledged(draft.id, message.offset())
        else:
            writer.failed(draft.id, error)

    return done


def _send(producer: Producer, writer: Writer, draft: Draft) -> None:
    while True:
        try:
            producer.produce(
                draft.place[0],
                draft.value,
                draft.key,
                partition=draft.place[1],
                on_delivery=_noted(writer, draft),
                headers=draft.headers,
            )
            break
        except BufferError:
            producer.poll(POLL_SECONDS)
        except KafkaException as error:
            writer.failed(draft.id, error, unknown=False)
            said = error.args[0]
            if not said.txn_requires_abort() and said.code() not in (KafkaError._STATE, *NO_TOPIC):
                raise
            break
    producer.poll(0)


def _end(producer: Producer, transactions: Transactions, *, commit: bool) -> bool:
    """End a transaction, and return whether it was committed.

    Raises:
        KafkaException: the producer cannot be used any more.
    """
    if not commit:
        _abort(producer, transactions)
        return False
    transactions.end(commit=True)
    while True:
        try:
            producer.commit_transaction(SECONDS)
            transactions.ended(commit=True)
            return True
        except KafkaException as error:
            said = error.args[0]
            if said.txn_requires_abort():
                _abort(producer, transactions)
                return False
            if not said.retriable():
                transactions.ended(commit=True, error=error)
                raise


def _abort(producer: Producer, transactions: Transactions) -> None:
    transactions.end(commit=False)
    while True:
        try:
            producer.abort_transaction(SECONDS)
            transactions.ended(commit=False)
            return
        except KafkaException as error:
            if not error.args[0].retriable():
                transactions.ended(commit=False, error=error)
                raise


def _subscribed(task: Task, reader: Reader) -> Consumer:
    settings = {
        "bootstrap.servers": task.bootstrap,
        "client.id": task.name,
        "group.id": task.group,
        "isolation.level": task.isolation,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "reconnect.backoff.max.ms": 500,
        **KEEP_BROKERS,
        "log_level": 0,
    }
    if task.protocol == "consumer":
        settings["group.protocol"] = "consumer"
    else:
        settings |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 1000}
        if task.assignor:
            settings["partition.assignment.strategy"] = task.assignor

    def revoked(consumer: Consumer, parts: list[TopicPartition]) -> None:
        _commit(consumer, reader, task.role == "consume")
        reader.revoked(_places(parts))

    def lost(_: Consumer, parts: list[TopicPartition]) -> None:
        reader.revoked(_places(parts))

    def assigned(_: Consumer, parts: list[TopicPartition]) -> None:
        reader.assigned(_places(parts))

    consumer = Consumer(settings)
    consumer.subscribe(list(task.topics), on_assign=assigned, on_revoke=revoked, on_lost=lost)
    return consumer


def _poll(consumer: Consumer, reader: Reader) -> bool:
    """Poll up to a batch of records, and return whether there were any.

    It notes each record before the next call, because a rebalance can happen in any call.
    """
    wait = POLL_SECONDS
    for _ in range(BATCH):
        message = consumer.poll(wait)
        if message is None:
            break
        wait = 0
        if message.error() is None:
            named = identity(message.value(), message.headers())
            reader.read([(message.topic(), message.partition(), message.offset(), named)])
    return bool(reader.done)


def _commit(consumer: Consumer, reader: Reader, wanted: bool = True) -> None:
    if not (reader.done and wanted):
        return
    offsets = reader.taken()
    reader.commit(offsets)
    try:
        for part in consumer.commit(offsets=_offsets(offsets), asynchronous=False):
            if part.error is not None:
                raise KafkaException(part.error)
    except KafkaException as error:
        reader.not_committed(offsets, error, _places(consumer.assignment()))
    else:
        reader.committed()


def _rewind(consumer: Consumer, reader: Reader) -> None:
    """Seek to the group's committed offsets after an aborted transaction."""
    while True:
        try:
            parts = consumer.committed(consumer.assignment(), SECONDS)
            break
        except KafkaException as error:
            if not error.args[0].retriable() and error.args[0].code() != KafkaError._TIMED_OUT:
                raise
    offsets = {(part.topic, part.partition): max(part.offset, 0) for part in parts}
    reader.moved(offsets)
    for part in _offsets(offsets):
        consumer.seek(part)


def _places(parts: list[TopicPartition]) -> list[Place]:
    return [(part.topic, part.partition) for part in parts]


def _offsets(offsets: Offsets) -> list[TopicPartition]:
    return [TopicPartition(topic, partition, offset) for (topic, partition), offset in offsets.items()]


ROLES = {
    "produce": produce,
    "newcomers": newcomers,
    "transact": transact,
    "transform": transform,
    "consume": consume,
    "recycle": recycle,
    "keep": keep,
    "work": work,
}
