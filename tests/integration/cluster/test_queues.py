"""Queues whose leaders and share coordinators fail: no record is lost."""

from __future__ import annotations

import threading
import time

import pytest
from tests.integration.conftest import use_share_groups

from barnabas.base.types import SHARE_GROUP_STATE_TOPIC
from barnabas.client import Producer, Worker

PATIENCE = 90.0
JOBS = 300


@pytest.fixture
def cluster(barnabas_cluster):
    return barnabas_cluster(
        brokers=3,
        settings={
            "replica.lag.time.max.ms": "1000",
            "share.coordinator.state.topic.num.partitions": "1",
            "offsets.topic.num.partitions": "1",
            "group.share.min.heartbeat.interval.ms": "500",
            "group.share.heartbeat.interval.ms": "500",
            "group.share.min.record.lock.duration.ms": "1000",
        },
    )


def test_no_record_is_lost_when_the_leaders_die(cluster, connect):
    cluster.create_topic("jobs", 3)
    cluster.wait_in_sync("jobs")
    use_share_groups(connect(cluster.address_of(cluster.controller())))
    settings = {"share.auto.offset.reset": "earliest", "share.record.lock.duration.ms": "1000"}
    cluster.admin().alter_configs("group", "g", set=settings)
    done: set[str] = set()
    with Producer(cluster.bootstrap_servers) as producer:
        for number in range(JOBS):
            producer.send("jobs", f"job {number}")
    finished = threading.Event()

    def run() -> None:
        with Worker(cluster.bootstrap_servers, "jobs", group="g", max_poll_records=5) as worker:
            while not finished.is_set():
                record = worker.poll(0.5)
                if record is not None:
                    done.add(record.text)
                    time.sleep(0.01)
                    if len(done) == JOBS:
                        finished.set()

    threads = [threading.Thread(target=run, daemon=True) for _ in range(2)]
    for thread in threads:
        thread.start()
    for topic in ("jobs", SHARE_GROUP_STATE_TOPIC):
        at_least = len(done) + 20
        deadline = time.monotonic() + PATIENCE
        while len(done) < at_least and time.monotonic() < deadline:
            time.sleep(0.05)
        leader = cluster.leader_of(topic)
        cluster.kill(leader)
        cluster.restart(leader)
        cluster.wait_in_sync()
    assert finished.wait(PATIENCE), sorted({f"job {n}" for n in range(JOBS)} - done)
    for thread in threads:
        thread.join()
