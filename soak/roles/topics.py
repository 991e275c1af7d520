"""The roles of an administrator, with confluent-kafka: create and delete topics, and delete records."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import closing, suppress
from operator import itemgetter

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec

from barnabas.client.settings import KEEP_BROKERS
from soak.roles.common import SECONDS, Place, Stop, Task, identity
from soak.roles.metadata import REQUEST_SECONDS, topic_at

POLL_SECONDS = 0.2
#: how often an administrator who looks after logs deletes records, too
DELETES = 0.5


def recycle(task: Task, stop: Stop) -> None:
    """Create a topic that other clients write to, read it to its end, delete it, and begin again."""
    Recycler(task, stop).run()


def keep(task: Task, stop: Stop) -> None:
    """Note the start and the end of logs, and delete the oldest records of the topics in `outputs`."""
    Keeper(task).run(stop)


def _admin(task: Task) -> AdminClient:
    return AdminClient(_settings(task))


def _settings(task: Task) -> dict[str, object]:
    return {
        "bootstrap.servers": task.bootstrap,
        "client.id": task.name,
        "reconnect.backoff.max.ms": 500,
        **KEEP_BROKERS,
        "log_level": 0,
    }


class Recycler:
    def __init__(self, task: Task, stop: Stop) -> None:
        self._task = task
        self._stop = stop
        self._recorder = task.recorder()
        self._random = random.Random(f"{task.seed} {task.name}")
        self._admin = _admin(task)
        ((self._topic, self._partitions),) = task.topics.items()

    def run(self) -> None:
        while self._create() and self._rest(2, 8):
            for partition in range(self._partitions):
                self._scan(partition)
            if not self._remove():
                break
            self._rest(0, 1.5)
        if self._stop:
            self._create()

    def _create(self) -> bool:
        """Create the topic. Return whether it exists now; False if that is unknown."""
        self._recorder.note("create", topic=self._topic)
        deadline = time.monotonic() + SECONDS
        while True:
            new = NewTopic(self._topic, self._partitions, -1, config=self._task.configs)
            made = self._admin.create_topics([new], request_timeout=REQUEST_SECONDS)
            existed = False
            try:
                made[self._topic].result(2 * REQUEST_SECONDS)
            except KafkaException as error:
                existed = error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
                if not existed:
                    if self._over(deadline):
                        self._recorder.note("created", topic=self._topic, ok=False, error=str(error))
                        return False
                    continue
            self._recorder.note(
                "created", topic=self._topic, ok=True, topic_id=self._topic_id(), existed=existed
            )
            return True

    def _topic_id(self) -> str | None:
        """Return the topic id that most brokers know. A broker that is cut off may not know of a deletion."""
        servers = self._task.bootstrap.split(",")
        answers = [topic for server in servers if (topic := topic_at(server, self._topic)) is not None]
        told = Counter(topic.topic_id.hex() for topic in answers)
        found, count = max(told.items(), key=itemgetter(1), default=(None, 0))
        return found if count > len(servers) / 2 else None

    def _remove(self) -> bool:
        """Delete the topic. Return whether it is gone, by this call or an earlier one; False if that is
        unknown.
        """
        self._recorder.note("remove", topic=self._topic)
        deadline = time.monotonic() + SECONDS
        may_be_done = False
        while True:
            removed = self._admin.delete_topics([self._topic], request_timeout=REQUEST_SECONDS)
            try:
                removed[self._topic].result(2 * REQUEST_SECONDS)
                self._recorder.note("removed", topic=self._topic, ok=True, existed=True)
                return True
            except KafkaException as error:
                if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                    self._recorder.note("removed", topic=self._topic, ok=True, existed=may_be_done)
                    return True
                may_be_done = True
                if self._over(deadline):
                    self._recorder.note("removed", topic=self._topic, ok=False, error=str(error))
                    return False

    def _scan(self, partition: int) -> None:
        """Read all present records and note them. Note nothing if the read does not reach the end in time."""
        place = (self._topic, partition)
        asked = time.monotonic_ns()
        settings = {"group.id": self._task.name, "enable.partition.eof": True, "enable.auto.commit": False}
        with closing(Consumer(_settings(self._task) | settings)) as consumer:
            consumer.assign([TopicPartition(*place, 0)])
            records = _until_end(consumer, TopicPartition(*place))
        if records is not None:
            self._recorder.note("scan", asked=asked, topic=place[0], partition=place[1], records=records)

    def _rest(self, minimum: float, maximum: float) -> bool:
        """Wait for `minimum` to `maximum` seconds, drawn at random. Return False if the role should stop."""
        until = time.monotonic() + self._random.uniform(minimum, maximum)
        while not self._stop and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return not self._stop

    def _over(self, deadline: float) -> bool:
        time.sleep(POLL_SECONDS)
        return bool(self._stop) and time.monotonic() > deadline


def _until_end(consumer: Consumer, partition: TopicPartition) -> list[tuple[int, str, str | None]] | None:
    """Return all records up to the end offset that the broker returns; None if they cannot all be read.

    The consumer's own end of the partition can be too early after a failover.
    """
    records: list[tuple[int, str, str | None]] = []
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        message = consumer.poll(POLL_SECONDS)
        if message is None:
            continue
        error = message.error()
        if error is None:
            key = message.key()
            named = identity(message.value(), message.headers())
            records.append((message.offset(), named, None if key is None else key.decode()))
        elif error.code() == KafkaError._PARTITION_EOF:
            with suppress(KafkaException):
                _, end = consumer.get_watermark_offsets(partition, REQUEST_SECONDS)
                if end <= message.offset():
                    return records
        elif not error.retriable():
            return None
    return None


class Keeper:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._recorder = task.recorder()
        self._random = random.Random(f"{task.seed} {task.name}")
        self._admin = _admin(task)
        self._places = [(topic, number) for topic, count in task.topics.items() for number in range(count)]
        self._deletes = 0

    def run(self, stop: Stop) -> None:
        while not stop:
            bounds = self._bounds()
            shrinking = [place for place in bounds if place[0] in self._task.outputs]
            if shrinking and self._random.random() < DELETES:
                place = self._random.choice(shrinking)
                self._delete(place, *bounds[place])
            time.sleep(self._task.pause)

    def _bounds(self) -> dict[Place, tuple[int, int]]:
        """Return the log start and the high watermark of each partition; an empty dict if the broker does not
        answer.
        """
        asked = time.monotonic_ns()
        try:
            starts = self._list(OffsetSpec.earliest())
            ends = self._list(OffsetSpec.latest())
        except KafkaException:
            # librdkafka goes on asking with the leader epochs that it knows, which a restart has made old
            self._admin = _admin(self._task)
            return {}
        bounds = {place: (starts[place], ends[place]) for place in starts}
        if min(map(min, bounds.values())) < 0:
            return {}  # so librdkafka says that a part of the request has timed out
        self._recorder.note("bounds", asked=asked, bounds=[(*place, *bounds[place]) for place in bounds])
        return bounds

    def _list(self, spec: OffsetSpec) -> dict[Place, int]:
        asked = {TopicPartition(*place): spec for place in self._places}
        answers = self._admin.list_offsets(asked, request_timeout=REQUEST_SECONDS)
        return {
            (part.topic, part.partition): answer.result(2 * REQUEST_SECONDS).offset
            for part, answer in answers.items()
        }

    def _delete(self, place: Place, start: int, end: int) -> None:
        """Delete records up to a random offset, usually near the log start."""
        offset = start + int((end - start) * self._random.random() ** 2)
        self._deletes += 1
        self._recorder.note("delete", number=self._deletes, offsets=[(*place, offset)])
        part = TopicPartition(*place, offset)
        answer = self._admin.delete_records([part], request_timeout=REQUEST_SECONDS)[part]
        try:
            answer.result(2 * REQUEST_SECONDS)
            self._recorder.note("deleted", number=self._deletes, ok=True, error=None)
        except KafkaException as error:
            self._recorder.note("deleted", number=self._deletes, ok=False, error=str(error))
