"""Members of consumer groups, one class for each client library, all with the same methods.

Each member reads a topic, notes what it reads, and commits before it gives up a partition. So a record that
is read twice or missed shows a defect of the group. `python -m tests.integration.group_members` runs a member
in its own process, which a test can kill.
"""

from __future__ import annotations

import asyncio
import json
import sys
import threading
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from typing import NamedTuple, Protocol

HEARTBEAT_MS = 100  # how soon a member hears of a rebalance
AT_ONCE = 10  # records a poll returns at most, so that many things can happen between two polls

CONSUMER_PROTOCOL = "consumer "  # before the name of a broker's assignor


class Seen(NamedTuple):
    """A record that a member has read."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes


Note = Callable[[Seen], None]


class Client(Protocol):
    """A subscribed consumer. Only one thread calls its methods."""

    def poll(self, note: Note) -> None:
        """Read the present records for about a tenth of a second, and take part in the group."""
        ...

    def partitions(self) -> set[int]: ...

    def commit(self) -> None:
        """Commit all records that were read."""
        ...

    def close(self) -> None:
        """Commit, and leave the group."""
        ...


class Librdkafka:
    def __init__(self, servers: str, group_id: str, topic: str, strategy: str, **settings: object) -> None:
        from confluent_kafka import Consumer

        self._next: dict[int, int] = {}
        self._topic = topic
        self._consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": group_id,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **self._group_settings(strategy),
                **{name.replace("_", "."): value for name, value in settings.items()},
            }
        )
        self._consumer.subscribe(
            [topic],
            on_revoke=lambda *_: self.commit(),
            on_lost=lambda *_: self._next.clear(),
        )

    @staticmethod
    def _group_settings(strategy: str) -> dict[str, object]:
        if strategy.startswith(CONSUMER_PROTOCOL):
            # The broker assigns, and says how often it wants to hear of a member.
            assignor = strategy.removeprefix(CONSUMER_PROTOCOL)
            return {"group.protocol": "consumer", "group.remote.assignor": assignor}
        return {"partition.assignment.strategy": strategy, "heartbeat.interval.ms": HEARTBEAT_MS}

    def poll(self, note: Note) -> None:
        for timeout in (0.1, *[0.0] * (AT_ONCE - 1)):
            message = self._consumer.poll(timeout)
            if message is None:
                return
            assert message.error() is None, message.error()
            note(Seen(message.partition(), message.offset(), message.key(), message.value()))
            self._next[message.partition()] = message.offset() + 1

    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        from confluent_kafka import TopicPartition

        if self._next:
            offsets = [TopicPartition(self._topic, *position) for position in self._next.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)
        self._next.clear()

    def close(self) -> None:
        from confluent_kafka import KafkaException

        # Revoking commits, too, but within close() a commit may end in _DESTROY: once in a dozen runs of CI.
        with suppress(KafkaException):  # a rebalance is under way: revoking commits then
            self.commit()
        self._consumer.close()


class KafkaPython:
    def __init__(self, servers: str, group_id: str, topic: str, strategy: str, **settings: object) -> None:
        from kafka import KafkaConsumer
        from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
        from kafka.coordinator.assignors.range import RangePartitionAssignor
        from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        assignors = [
            RangePartitionAssignor,
            RoundRobinPartitionAssignor,
            StickyPartitionAssignor,
            CooperativeStickyAssignor,
        ]
        (assignor,) = [assignor for assignor in assignors if assignor.name == strategy]
        self._consumer = KafkaConsumer(
            bootstrap_servers=servers,
            group_id=group_id,
            auto_offset_reset="earliest",
            # Its listeners may not block: it commits before a rebalance only when it commits by itself.
            enable_auto_commit=True,
            partition_assignment_strategy=[assignor],
            heartbeat_interval_ms=HEARTBEAT_MS,
            max_poll_records=AT_ONCE,
            **settings,
        )
        self._consumer.subscribe([topic])

    def poll(self, note: Note) -> None:
        # Not shorter: a poll that times out while the member is joining can lose the assignment (3.0.12).
        for records in self._consumer.poll(timeout_ms=1500).values():
            for record in records:
                note(Seen(record.partition, record.offset, record.key, record.value))

    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        self._consumer.commit()

    def close(self) -> None:
        self._consumer.close()


class Aiokafka:
    def __init__(self, servers: str, group_id: str, topic: str, strategy: str, **settings: object) -> None:
        from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
        from aiokafka.coordinator.assignors.range import RangePartitionAssignor
        from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
        from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

        class Listener(ConsumerRebalanceListener):
            async def on_partitions_revoked(_, revoked: object) -> None:
                if revoked:
                    await self._consumer.commit()

            def on_partitions_assigned(_, assigned: object) -> None: ...

        assignors = [RangePartitionAssignor, RoundRobinPartitionAssignor, StickyPartitionAssignor]
        (assignor,) = [assignor for assignor in assignors if assignor.name == strategy]
        self._loop = asyncio.new_event_loop()

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(
                bootstrap_servers=servers,
                group_id=group_id,
                auto_offset_reset="earliest",
                enable_auto_commit=False,
                partition_assignment_strategy=[assignor],
                heartbeat_interval_ms=HEARTBEAT_MS,
                **settings,
            )
            consumer.subscribe([topic], listener=Listener())
            return consumer

        self._consumer = self._loop.run_until_complete(start())
        self._loop.run_until_complete(self._consumer.start())

    def poll(self, note: Note) -> None:
        async def read() -> None:
            # Noted before anything else runs on the loop: a commit in between would be too early.
            batches = await self._consumer.getmany(timeout_ms=100, max_records=AT_ONCE)
            for records in batches.values():
                for record in records:
                    note(Seen(record.partition, record.offset, record.key, record.value))

        self._loop.run_until_complete(read())

    def partitions(self) -> set[int]:
        return {partition.partition for partition in self._consumer.assignment()}

    def commit(self) -> None:
        if self._consumer.assignment():
            self._loop.run_until_complete(self._consumer.commit())

    def close(self) -> None:
        from aiokafka.errors import CommitFailedError

        try:
            with suppress(CommitFailedError):  # the member has rejoined since: revoking committed before that
                self.commit()
        finally:
            self._loop.run_until_complete(self._consumer.stop())
            self._loop.close()


CLIENTS: dict[str, Callable[..., Client]] = {
    "librdkafka": Librdkafka,
    "kafka-python": KafkaPython,
    "aiokafka": Aiokafka,
}
#: every assignor of every client
STRATEGIES = [
    *(("librdkafka", name) for name in ("range", "roundrobin", "cooperative-sticky")),
    *(("librdkafka", f"{CONSUMER_PROTOCOL}{name}") for name in ("uniform", "range")),
    *(("kafka-python", name) for name in ("range", "roundrobin", "sticky", "cooperative-sticky")),
    *(("aiokafka", name) for name in ("range", "roundrobin", "sticky")),
]


class Member:
    """A client in its own thread. All members of a group share `log`, which has the records in the order of
    reading.
    """

    def __init__(self, open_client: Callable[[], Client], log: list[Seen]) -> None:
        #: as of the last poll: librdkafka's consumer may not be asked from another thread
        self.partitions: set[int] = set()
        self.failure: BaseException | None = None
        self._log = log
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(open_client,))
        self._thread.start()

    def _run(self, open_client: Callable[[], Client]) -> None:
        try:
            client = open_client()
            try:
                while not self._stop.is_set():
                    client.poll(self._log.append)
                    self.partitions = client.partitions()
            finally:
                client.close()
        except:  # noqa: E722 - confluent-kafka may raise a KafkaError, which is no exception
            self.failure = sys.exc_info()[1]

    def leave(self) -> None:
        """Start to leave the group."""
        self._stop.set()

    def stop(self) -> None:
        """Leave the group, and wait for the end."""
        self.leave()
        self._thread.join(60)
        assert not self._thread.is_alive(), "the client does not end"
        assert self.failure is None, self.failure


def stop_all(members: Collection[Member]) -> None:
    for member in members:
        member.leave()
    for member in members:
        member.stop()


def wait(condition: Callable[[], bool], *members: Member, seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        state = [(member.partitions, member.failure) for member in members]
        assert time.monotonic() < deadline and all(failure is None for _, failure in state), state
        time.sleep(0.02)


def main() -> None:
    """Read until killed. Print each record, then commit, then pause a little."""
    name, settings = sys.argv[1], json.loads(sys.argv[2])
    client = CLIENTS[name](**settings)

    def process(seen: Seen) -> None:
        print(seen.partition, seen.offset, flush=True)

    with suppress(BrokenPipeError):
        while True:
            client.poll(process)
            client.commit()
            time.sleep(0.02)


if __name__ == "__main__":
    main()
