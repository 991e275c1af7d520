"""Tasks that write exactly once, repeated while their cluster changes or has faults. They need no Spark."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable

import pytest
from tests.integration.cluster.test_growth import grow, shrink, spread
from tests.spark.committed import committed_values
from tests.spark.test_exactly_once import options, rows

from barnabas.spark.exactly_once import WriteId, write_once
from barnabas.testing import BarnabasCluster

Step = Callable[[BarnabasCluster], object]
#: a follower that is cut off, or cannot write, leaves the ISR soon
QUICK = {"replica.lag.time.max.ms": "2000"}
SINK_TOPICS = ("copies", "__transaction_state", "__consumer_offsets")


def cut_off_leaders(cluster: BarnabasCluster) -> None:
    """Cut one leader after the other off from the other brokers for a moment."""
    for topic in SINK_TOPICS:
        leader = cluster.leader_of(topic)
        cluster.partition(leader, [broker for broker in cluster.running if broker != leader])
        time.sleep(3)
        cluster.heal()


def lose_sessions(cluster: BarnabasCluster) -> None:
    """End the session of one leader after the other with the metadata store."""
    for topic in SINK_TOPICS:
        cluster.expire_session(cluster.leader_of(topic))
        time.sleep(1)


def fill_disks(cluster: BarnabasCluster) -> None:
    """Fill the disk of one leader after the other for a moment."""
    for topic in SINK_TOPICS:
        leader = cluster.leader_of(topic)
        cluster.fill_disk(leader)
        time.sleep(1)
        cluster.free_disk(leader)
        cluster.restart(leader)


@pytest.mark.parametrize(
    "steps",
    [[grow, spread, shrink], [cut_off_leaders], [lose_sessions], [fill_disks]],
    ids=["grows and shrinks", "is cut", "loses sessions", "has full disks"],
)
def test_each_row_is_written_once_though_tasks_run_again_while_the_cluster(barnabas_cluster, steps):
    cluster = barnabas_cluster(brokers=3, later=2, settings=QUICK)
    cluster.create_topic("copies")
    sink = uuid.uuid4().hex
    given = options(cluster.bootstrap_servers, "copies")
    over = threading.Event()
    failures: list[Exception] = []

    def write(batch: int) -> None:
        """Write a batch as Spark does: repeat a task that fails."""
        deadline = time.monotonic() + 120
        while True:
            try:
                write_once(given, WriteId(sink, batch, 0), rows(batch, count=200))
                return
            except Exception:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def trouble() -> None:
        try:
            for step in steps:
                step(cluster)
        except Exception as error:
            failures.append(error)
        finally:
            over.set()

    write(0)
    thread = threading.Thread(target=trouble)
    thread.start()
    batch = 0
    while not over.is_set() or batch < 5:
        batch += 1
        write(batch)
        write(batch)  # its driver did not hear of the first attempt
    thread.join()
    assert not failures
    expected = sorted(f"{each}-0-{number}" for each in range(batch + 1) for number in range(200))
    assert committed_values(cluster.bootstrap_servers, "copies") == expected
