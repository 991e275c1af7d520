"""Tasks that write exactly once: repeated, killed, overtaken, and at the same time. They need no Spark."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient
from tests.spark.committed import committed_values, last_stable_offset

from barnabas.base.errors import BarnabasError
from barnabas.client import brokers
from barnabas.spark.exactly_once import ReplayError, WriteId, write_once
from barnabas.spark.options import WriteOptions
from barnabas.spark.record_sink import DeliveryError
from barnabas.spark.task_content import KeysContent
from barnabas.testing import BarnabasBroker, BarnabasCluster

MakeTopic = Callable[..., str]

SEEDS = range(int(os.environ.get("BARNABAS_KILL_SEEDS", "2")))
ROWS = 3_000
BATCHES = 3

#: Attempts are forked from a process that has imported this module and all that it needs, as Spark's are.
forked = multiprocessing.get_context("forkserver")
forked.set_forkserver_preload([__name__])


def rows(batch: int = 0, partition: int = 0, count: int = ROWS) -> Iterator[pa.RecordBatch]:
    values = [f"{batch}-{partition}-{number}" for number in range(count)]
    for start in range(0, count, 500):
        yield pa.RecordBatch.from_pydict({"value": values[start : start + 500]})


def everything(batches: int, partitions: int = 1) -> list[str]:
    places = [(batch, partition) for batch in range(batches) for partition in range(partitions)]
    tables = [pa.Table.from_batches(rows(*place)) for place in places]
    return sorted(value for table in tables for value in table["value"].to_pylist())


def options(servers: str, topic: str | None, **changes: object) -> WriteOptions:
    client = {"bootstrap.servers": servers, "log_level": "0", "reconnect.backoff.max.ms": "200"}
    return WriteOptions(client, topic, exactly_once=True, **changes)


def attempt(servers: str, topic: str, what: WriteId, die_after: bool = False) -> None:
    """Run one attempt of a task in its own process. With `die_after`, it dies after its commit and before its
    report.
    """
    write_once(options(servers, topic), what, rows(what.batch, what.partition))
    if die_after:
        os.kill(os.getpid(), signal.SIGKILL)


@pytest.fixture
def sink() -> str:
    return uuid.uuid4().hex


def test_a_task_that_is_tried_again_writes_nothing_more(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    for _ in range(3):
        assert write_once(options(servers, topic), WriteId(sink, 0, 0), rows()).rows == ROWS
    assert committed_values(servers, topic) == everything(1)


def test_tasks_batches_and_sinks_are_told_apart(servers: str, make_topic: MakeTopic, sink: str) -> None:
    topic = make_topic(2)
    for batch in range(3):
        for partition in range(2):
            write_once(options(servers, topic), WriteId(sink, batch, partition), rows(batch, partition))
    assert committed_values(servers, topic) == everything(3, 2)
    write_once(options(servers, topic), WriteId(f"{sink}-other", 0, 0), rows())
    assert committed_values(servers, topic) == sorted(everything(3, 2) + everything(1))


def test_a_task_without_rows_writes_nothing_and_remembers_nothing(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic, what = make_topic(), WriteId(sink, 0, 0)
    nothing = [pa.RecordBatch.from_pydict({"value": []})]
    assert write_once(options(servers, topic), what, iter(nothing)).rows == 0
    assert write_once(options(servers, topic), what, rows()).rows == ROWS
    with pytest.raises(ReplayError, match=f"was written with {ROWS} rows and now has 0"):
        write_once(options(servers, topic), what, iter(nothing))
    assert write_once(options(servers, topic), WriteId(sink, 1, 0), iter(nothing)).rows == 0


def test_an_attempt_that_is_overtaken_fails_and_leaves_nothing(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()

    def overtaken() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(rows()):
            yield batch
            if number == 2:
                write_once(options(servers, topic), WriteId(sink, 0, 0), rows())

    with pytest.raises(DeliveryError, match="another attempt of this task has taken over"):
        write_once(options(servers, topic), WriteId(sink, 0, 0), overtaken())
    assert committed_values(servers, topic) == everything(1)


def test_an_attempt_that_fails_lets_readers_pass_at_once(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()

    def broken() -> Iterator[pa.RecordBatch]:
        yield from rows()
        raise OSError("upstream")

    with pytest.raises(OSError, match="upstream"):
        write_once(options(servers, topic), WriteId(sink, 0, 0), broken())
    assert committed_values(servers, topic) == []
    assert write_once(options(servers, topic), WriteId(sink, 0, 0), rows()).rows == ROWS
    assert committed_values(servers, topic) == everything(1)


def test_a_transaction_that_takes_too_long_fails(sink: str) -> None:
    looks_often = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "100"}
    with BarnabasBroker(looks_often) as broker:
        broker.create_topic("t")
        slow = options(broker.bootstrap_servers, "t")
        slow.client["transaction.timeout.ms"] = "1000"

        def dawdling() -> Iterator[pa.RecordBatch]:
            yield from rows()
            # until the broker has aborted, perhaps before it had all rows
            wait_for(lambda: last_stable_offset(broker.bootstrap_servers, "t") > 0)
            yield from rows(1)

        with pytest.raises(DeliveryError, match="its transaction took longer than"):
            write_once(slow, WriteId(sink, 0, 0), dawdling())
        assert committed_values(broker.bootstrap_servers, "t") == []


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_replay_with_another_number_of_rows_is_refused_or_left_out(
    servers: str, make_topic: MakeTopic, sink: str, caplog: pytest.LogCaptureFixture
) -> None:
    topic = make_topic()
    what = WriteId(sink, 0, 0)
    write_once(options(servers, topic), what, rows())
    message = f"task 0 of batch 0 of sink {sink} was written with {ROWS} rows and now has 10: the query's"
    with pytest.raises(ReplayError, match=message):
        write_once(options(servers, topic), what, rows(count=10))
    lenient = options(servers, topic, fail_on_changed_replay=False)
    assert write_once(lenient, what, rows(count=10)).rows == 10
    assert message in caplog.text
    assert committed_values(servers, topic) == everything(1)


@pytest.mark.parametrize(
    "other",
    [{"key": "d"}, {"value": "w"}, {"partition": 1}, {"headers": [{"key": "h", "value": b"x"}]}],
    ids=lambda other: next(iter(other)),
)
def test_a_replay_with_other_rows_is_refused_and_one_in_another_order_is_not(
    servers: str, make_topic: MakeTopic, sink: str, other: dict[str, object]
) -> None:
    """A shuffle can change the order of rows, but the rows must be the same."""
    topic, what = make_topic(2), WriteId(sink, 0, 0)

    def keyed(keys: str, **changes: object) -> Iterator[pa.RecordBatch]:
        for key in keys:
            row = {"key": key, "value": "v", "partition": 0, "headers": [{"key": "h", "value": b"v"}]}
            yield pa.RecordBatch.from_pylist([row, {**row, "key": None}, {**row, **changes}])

    write_once(options(servers, topic), what, keyed("abc"))
    assert write_once(options(servers, topic), what, keyed("cab")).rows == 9
    with pytest.raises(ReplayError, match=f"sink {sink} was written with 9 rows of other content than"):
        write_once(options(servers, topic), what, keyed("abc", **other))
    lenient = options(servers, topic, fail_on_changed_replay=False)
    assert write_once(lenient, what, keyed("abc", **other)).rows == 9
    assert committed_values(servers, topic) == ["v"] * 9


def test_a_batch_before_the_last_one_is_refused(servers: str, make_topic: MakeTopic, sink: str) -> None:
    topic = make_topic()
    for batch in range(3):
        write_once(options(servers, topic), WriteId(sink, batch, 0), rows(batch))
    with pytest.raises(ReplayError, match=f"task 0 of batch 0 of sink {sink}: batch 2 is written already"):
        write_once(options(servers, topic), WriteId(sink, 0, 0), rows())
    assert committed_values(servers, topic) == everything(3)


def test_rows_that_name_their_topics_are_written_once_whichever_comes_first(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topics = sorted([make_topic(), make_topic()])
    for names in (topics, topics[::-1]):
        batch = pa.RecordBatch.from_pydict({"value": names, "topic": names})
        assert write_once(options(servers, None), WriteId(sink, 0, 0), iter([batch])).rows == 2
    assert [committed_values(servers, topic) for topic in topics] == [[topic] for topic in topics]


def test_a_group_that_is_in_use_by_another_is_left_alone(
    servers: str, make_topic: MakeTopic, sink: str, admin: AdminClient
) -> None:
    topic, what = make_topic(), WriteId(sink, 0, 0)
    theirs = ConsumerGroupTopicPartitions(what.name, [ClientPartition(topic, 0, 7)])
    admin.alter_consumer_group_offsets([theirs])[what.name].result(60)
    with pytest.raises(ReplayError, match=f"group {what.name} is in use by something else"):
        write_once(options(servers, topic), what, rows())


@pytest.mark.parametrize("batch", [0, 1])
def test_a_mark_whose_transaction_has_not_quite_ended_is_waited_for(
    servers: str, make_topic: MakeTopic, sink: str, monkeypatch: pytest.MonkeyPatch, batch: int
) -> None:
    """The mark is the first one, or replaces an older one."""
    topic, what = make_topic(), WriteId(sink, batch, 0)
    for earlier in range(batch):
        write_once(options(servers, topic), WriteId(sink, earlier, 0), rows(earlier))
    # by another transactional id, so that to take this one over does not end it
    other = Producer({"bootstrap.servers": servers, "transactional.id": f"{sink}-other", "log_level": 0})
    other.init_transactions(60)
    other.begin_transaction()
    place = ClientPartition(topic, 0, batch + 1, metadata=str(KeysContent(ROWS)))
    with Consumer({"bootstrap.servers": servers, "group.id": what.name, "log_level": 0}) as consumer:
        other.send_offsets_to_transaction([place], consumer.consumer_group_metadata(), 30)
    waits: list[float] = []

    def end_and_wait(seconds: float) -> None:
        if not waits:
            other.commit_transaction(60)
        waits.append(seconds)
        time.sleep(seconds)

    clock = SimpleNamespace(monotonic=time.monotonic, sleep=end_and_wait)
    monkeypatch.setattr(brokers, "time", clock)
    assert write_once(options(servers, topic), what, rows(batch)).rows == ROWS
    assert waits
    assert committed_values(servers, topic) == everything(batch)


def test_an_attempt_killed_between_its_commit_and_its_word_is_not_repeated(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    topic = make_topic()
    for die_after in (True, False):
        process = forked.Process(target=attempt, args=(servers, topic, WriteId(sink, 0, 0), die_after))
        process.start()
        process.join(60)
        assert process.exitcode == (-signal.SIGKILL if die_after else 0)
    assert committed_values(servers, topic) == everything(1)


@pytest.mark.parametrize("seed", SEEDS)
def test_attempts_killed_at_any_moment_write_each_row_once(
    servers: str, make_topic: MakeTopic, sink: str, seed: int
) -> None:
    """Each batch has two attempts, often at the same time, which are killed or paused at any moment."""
    chance = random.Random(seed)
    topic = make_topic(2)
    for batch in range(BATCHES):
        zombies = []
        while True:
            process = forked.Process(target=attempt, args=(servers, topic, WriteId(sink, batch, 0)))
            process.start()
            process.join(chance.uniform(0, 0.25))
            if process.exitcode == 0:
                break
            if process.exitcode is not None:
                continue  # overtaken by one that was stopped and goes on
            fate = chance.choice([signal.SIGKILL, signal.SIGSTOP, None])
            if fate is not None:
                os.kill(process.pid, fate)
            zombies.append(process)
            if fate is None and chance.random() < 0.5:
                process.join(60)
                if process.exitcode == 0:
                    break
        for zombie in zombies:
            if zombie.exitcode is None:
                os.kill(zombie.pid, signal.SIGCONT)
        for zombie in zombies:
            zombie.join(60)
            assert zombie.exitcode is not None
    assert committed_values(servers, topic) == everything(BATCHES)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_broker_killed_at_any_moment_gives_each_row_once(seed: int, sink: str) -> None:
    chance = random.Random(seed)
    with BarnabasBroker(mode="process") as broker:
        broker.create_topic("t")
        for batch in range(3):
            process = forked.Process(
                target=attempt, args=(broker.bootstrap_servers, "t", WriteId(sink, batch, 0))
            )
            process.start()
            process.join(chance.uniform(0, 0.2))
            broker.kill()
            broker.start()
            process.join(60)
            assert process.exitcode == 0
        assert committed_values(broker.bootstrap_servers, "t") == everything(3)


def test_a_transaction_longer_than_the_broker_allows_is_refused_by_name(
    servers: str, make_topic: MakeTopic, sink: str
) -> None:
    long = options(servers, make_topic())
    long.client["transaction.timeout.ms"] = "2000000"
    with pytest.raises(BarnabasError, match=r"cannot write task 0 of batch 0 .*timeout is larger"):
        write_once(long, WriteId(sink, 0, 0), rows())


def test_a_worker_that_knew_the_coordinator_of_a_sink_goes_on_when_that_broker_has_died(
    barnabas_cluster: Callable[..., BarnabasCluster], sink: str
) -> None:
    """A worker keeps its connections from task to task."""
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic("copies")
    given, first, second = (
        options(cluster.bootstrap_servers, "copies"),
        WriteId(sink, 0, 0),
        WriteId(sink, 1, 0),
    )
    write_once(given, first, rows(0))

    dies = cluster.admin().describe_group(first.name).coordinator
    assert dies is not None
    cluster.kill(dies)
    task = threading.Thread(target=write_once, args=[given, second, rows(1)], daemon=True)
    task.start()
    task.join(60)
    assert not task.is_alive(), "it waits for the broker that died"
    assert committed_values(cluster.bootstrap_servers, "copies") == everything(2)
