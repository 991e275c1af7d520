"""Members of a share group (KIP-932), by confluent-kafka: several in one process, each in its own thread."""

from __future__ import annotations

import random
import threading
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from zlib import crc32

from confluent_kafka import AcknowledgeType, KafkaException, Message, ShareConsumer

from barnabas.client.settings import KEEP_BROKERS
from soak.history import Recorder
from soak.roles.common import SECONDS, Stop, Task, identity

_POLL_SECONDS = 0.5
_KINDS = {1: AcknowledgeType.ACCEPT, 2: AcknowledgeType.RELEASE, 3: AcknowledgeType.REJECT}
#: types and how often a worker chooses each; no worker can process a poison record
_USUAL = ([1, 2, 3], [92, 6, 2])
_OF_POISON = ([2, 3], [80, 20])
_POISONED = 50


def work(task: Task, stop: Stop) -> None:
    """Run `task.workers` members of the share group until the process is told to stop."""
    threads = [
        threading.Thread(target=_work, args=(_named(task, number), stop), daemon=True)
        for number in range(task.workers)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _named(task: Task, number: int) -> Task:
    """Return the task of one member, with a history of its own."""
    return replace(
        task, name=f"{task.name}-{number}", history=task.history.removesuffix(".jsonl") + f"-{number}.jsonl"
    )


class _Member:
    """Writes the history of one member."""

    def __init__(self, task: Task, recorder: Recorder) -> None:
        self._recorder = recorder
        #: without a cluster, no former leader can deliver records that its successor has delivered
        self._has_one_leader = task.is_alone
        self._number = 0

    def request(self, verdicts: Sequence[tuple[str, int, int, int]] = ()) -> int:
        self._number += 1
        self._recorder.note("share_request", number=self._number, session="", verdicts=verdicts)
        return self._number

    def acquired(self, number: int, records: Sequence[tuple[str, int, int, str, int]] = ()) -> None:
        # Each delivery has another lease: the client cannot see whether the broker has restarted.
        places = dict.fromkeys((topic, partition) for topic, partition, *_ in records)
        leases = [(*place, f"delivery {number}") for place in places] if self._has_one_leader else []
        self._recorder.note("acquired", number=number, leases=leases, records=records)

    def acknowledged(self, number: int, results: dict[tuple[str, int], str | None]) -> None:
        listed = [(*place, error) for place, error in results.items()]
        self._recorder.note("acknowledged", number=number, results=listed)
        self.acquired(number)


def _work(task: Task, stop: Stop) -> None:
    chance = random.Random(f"{task.seed} {task.name}")
    member = _Member(task, task.recorder())
    consumer = ShareConsumer(_settings(task))
    consumer.subscribe(list(task.topics))
    # librdkafka may fetch before it is polled, so the request counts from the end of the last poll on.
    fetch = member.request()
    while not stop:
        messages = [each for each in consumer.poll(_POLL_SECONDS) if each.error() is None]
        member.acquired(fetch, [_described(each) for each in messages])
        fetch = member.request()
        if messages:
            _finish(consumer, member, messages, chance)
    consumer.close()


def _finish(
    consumer: ShareConsumer, member: _Member, messages: Sequence[Message], chance: random.Random
) -> None:
    """Acknowledge records, and wait for the broker's answer."""
    verdicts = []
    for message in messages:
        is_poison = crc32(_described(message)[3].encode()) % _POISONED == 0
        (kind,) = chance.choices(*(_OF_POISON if is_poison else _USUAL))
        consumer.acknowledge(message, _KINDS[kind])
        verdicts.append((message.topic(), message.partition(), message.offset(), kind))
    number = member.request(verdicts)
    try:
        results = consumer.commit_sync(SECONDS)
    except KafkaException:
        return  # the result is unknown
    member.acknowledged(
        number,
        {
            (part.topic, part.partition): None if error is None else str(error)
            for part, error in results.items()
        },
    )


def _described(message: Message) -> tuple[str, int, int, str, int]:
    identifier = identity(message.value(), message.headers())
    return message.topic(), message.partition(), message.offset(), identifier, message.delivery_count() or 1


def _settings(task: Task) -> dict[str, Any]:
    return {
        "bootstrap.servers": task.bootstrap,
        "client.id": task.name,
        "group.id": task.group,
        "share.acknowledgement.mode": "explicit",
        "reconnect.backoff.max.ms": 500,
        **KEEP_BROKERS,
        "log_level": 0,
    }
