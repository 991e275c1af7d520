"""`barnabas.client.Consumer` with a caller that needs longer for a record than `max.poll.interval.ms`."""

from __future__ import annotations

import logging
import threading
import time

import pytest

from barnabas.client import Consumer
from barnabas.testing.broker import BarnabasBroker

#: max.poll.interval.ms, in seconds: longer than a busy machine stands still, and longer than any test
SHORT, LONG = 8, 300


@pytest.fixture(scope="module")
def broker():
    with BarnabasBroker() as broker:
        yield broker


def member(broker, topic, max_poll=LONG, **settings):
    return Consumer(
        broker.bootstrap_servers,
        topic,
        group=f"group-of-{topic}",
        max_poll_interval_ms=int(max_poll * 1000),
        session_timeout_ms=8000,  # not longer than any max.poll.interval.ms
        heartbeat_interval_ms=300,
        **settings,
    )


def filled(broker, name, records, partitions=1):
    broker.create_topic(name, partitions)
    with broker.producer() as producer:
        for number in range(records):
            producer.send(name, str(number), partition=number % partitions)
    return name


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


class Reader:
    """Another member in its own thread, and the records that it got."""

    def __init__(self, broker, topic, **settings):
        self.records = []
        self._stopped = threading.Event()
        self._consumer = member(broker, topic, **settings)
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        with self._consumer as consumer:
            while not self._stopped.is_set():
                record = consumer.poll(0.1)
                if record is not None:
                    self.records.append(record.text)

    def stop(self):
        self._stopped.set()
        self._thread.join()


def described(broker, topic):
    return broker.admin().describe_group(f"group-of-{topic}")


PROTOCOLS = pytest.mark.parametrize(
    "protocol",
    [
        {},
        {"partition_assignment_strategy": "cooperative-sticky"},
    ],
    ids=["eager", "cooperative"],
)


@PROTOCOLS
def test_slow_handler_stays_in_its_group_and_gets_each_record_once(broker, protocol, request):
    topic = filled(broker, f"slow-{request.node.callspec.id}", 40)
    seen = []
    with member(broker, topic, SHORT, **protocol) as consumer:
        for record in consumer:
            seen.append(record.text)
            if len(seen) == 1:
                (before,) = described(broker, topic).members
                time.sleep(1.5 * SHORT)  # long enough that some records are kept and then partitions paused
            if len(seen) == 40:
                break
        (after,) = described(broker, topic).members
        assert after.member_id == before.member_id
    assert seen == [str(number) for number in range(40)]
    assert list(broker.admin().group_offsets(f"group-of-{topic}").values()) == [40]


@PROTOCOLS
def test_rebalance_waits_for_the_record_in_hand_and_no_record_comes_twice(broker, protocol, request):
    topic = filled(broker, f"shared-{request.node.callspec.id}", 400, partitions=2)
    mine = []
    with member(broker, topic, **protocol) as consumer:
        for _ in range(3):
            mine += [record.text for record in consumer.take(1)]
        other = Reader(broker, topic, **protocol)
        try:
            buffered = len(consumer._pending)
            # While nobody calls the consumer, its buffer loses what it is to give up. By the cooperative
            # protocol that may be the partition it is not working on, which the other gets at once.
            wait_for(lambda: len(consumer._pending) < buffered or other.records)
            if not protocol:
                assert described(broker, topic).state == "PreparingRebalance"
                assert other.records == []
            while len(set(mine) | set(other.records)) < 400:
                record = consumer.poll(0.1)
                if record is not None:
                    mine.append(record.text)
            assert other.records
        finally:
            other.stop()
    assert sorted(mine + other.records) == sorted(map(str, range(400)))


def test_record_that_outlasts_the_rebalance_goes_to_another_member_too(broker, caplog):
    caplog.set_level(logging.WARNING)
    topic = filled(broker, "outlasted", 20, partitions=1)
    with member(broker, topic, SHORT) as consumer:
        first = consumer.take(1)[0].text
        other = Reader(broker, topic, max_poll=SHORT)
        try:
            # One partition for two: whoever gets it reads all; the first may be given it again.
            wait_for(lambda: "is given up while a record of it is worked on" in caplog.text)
            mine = [first]
            while len(set(mine) | set(other.records)) < 20:
                record = consumer.poll(0.1)
                if record is not None:
                    mine.append(record.text)
        finally:
            other.stop()
    assert (mine + other.records).count(first) == 2  # it was not done when it was given up
    assert set(mine + other.records) == set(map(str, range(20)))


def test_consumer_that_is_closed_in_the_middle_of_a_record_lets_its_group_go_on(broker):
    topic = filled(broker, "closed", 20, partitions=2)
    consumer = member(broker, topic)
    first = consumer.take(1)[0].text
    other = Reader(broker, topic)
    try:
        wait_for(lambda: described(broker, topic).state == "PreparingRebalance")
        consumer.close()
        wait_for(lambda: len(other.records) == 20)
    finally:
        other.stop()
    assert first in other.records  # nobody said that it was done
