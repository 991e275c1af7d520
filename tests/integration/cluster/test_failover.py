"""Clients of three libraries write while brokers die, pause, restart and lose their connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from click.testing import CliRunner
from tests.integration.cluster.load import LOADS, Load, await_progress, check, stored_in

from barnabas.base.types import TopicPartition
from barnabas.cli.app import app
from barnabas.client import Consumer
from barnabas.testing import BarnabasCluster

#: kafka-python and aiokafka drop sockets and tasks of connections that were refused
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

TOPIC = "orders"

#: longer than the session timeout (2 s): the cluster has noticed
NOTICED = 3.0


def kill_leader(cluster: BarnabasCluster, load: Load) -> None:
    killed = cluster.leader_of(TOPIC, 0)
    cluster.kill(killed)
    await_progress(load)
    cluster.restart(killed)


def kill_follower(cluster: BarnabasCluster, load: Load) -> None:
    killed = next(broker for broker in cluster.brokers if broker != cluster.leader_of(TOPIC, 0))
    cluster.kill(killed)
    await_progress(load)
    cluster.restart(killed)


def kill_controller(cluster: BarnabasCluster, load: Load) -> None:
    killed = cluster.controller()
    cluster.kill(killed)
    await_progress(load)
    cluster.restart(killed)


def pause_leader(cluster: BarnabasCluster, load: Load) -> None:
    paused = cluster.leader_of(TOPIC, 0)
    cluster.pause(paused)
    await_progress(load)
    time.sleep(NOTICED)
    cluster.resume(paused)


def rolling_restart(cluster: BarnabasCluster, load: Load) -> None:
    for broker in cluster.brokers:
        cluster.restart(broker)
        cluster.wait_in_sync()
        await_progress(load, 50)


def isolate_leader(cluster: BarnabasCluster, load: Load) -> None:
    leader = cluster.leader_of(TOPIC, 0)
    cluster.partition(leader, [broker for broker in cluster.brokers if broker != leader])
    time.sleep(NOTICED)
    cluster.heal()


def isolate_one_way(cluster: BarnabasCluster, load: Load) -> None:
    leader = cluster.leader_of(TOPIC, 0)
    cluster.partition(leader, [broker for broker in cluster.brokers if broker != leader], one_way=True)
    time.sleep(NOTICED)
    cluster.heal()


def expire_leader(cluster: BarnabasCluster, load: Load) -> None:
    cluster.expire_session(cluster.leader_of(TOPIC, 0))


def kill_all(cluster: BarnabasCluster, load: Load) -> None:
    for broker in cluster.brokers:
        cluster.kill(broker)
    for broker in cluster.brokers:
        cluster.restart(broker)


def fill_leaders_disk(cluster: BarnabasCluster, load: Load) -> None:
    """Fill the disk of a leader. The broker leaves the ISRs, and others lead. It catches up when there is
    space.
    """
    full = cluster.leader_of(TOPIC, 0)
    cluster.fill_disk(full)
    await_progress(load, 500, timeout=60)
    assert cluster.leader_of(TOPIC, 0) != full
    cluster.free_disk(full)


def fill_followers_disk(cluster: BarnabasCluster, load: Load) -> None:
    """Fill the disk of a follower.

    It leaves the ISR itself, so no write waits for ``replica.lag.time.max.ms``.
    """
    full = next(broker for broker in cluster.brokers if broker != cluster.leader_of(TOPIC, 0))
    cluster.fill_disk(full)
    await_progress(load, 500, timeout=60)
    cluster.free_disk(full)


FAULTS: dict[str, Callable[[BarnabasCluster, Load], None]] = {
    function.__name__: function
    for function in (
        kill_leader,
        kill_follower,
        kill_controller,
        pause_leader,
        rolling_restart,
        isolate_leader,
        isolate_one_way,
        expire_leader,
        kill_all,
        fill_leaders_disk,
        fill_followers_disk,
    )
}

CASES = [
    *(("confluent-kafka", fault) for fault in FAULTS),
    *(
        (library, fault)
        for library in ("kafka-python", "aiokafka")
        for fault in ("kill_leader", "pause_leader", "rolling_restart")
    ),
]


@pytest.mark.parametrize(("library", "fault"), CASES, ids=lambda value: str(value).replace("_", "-"))
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(barnabas_cluster, library, fault):
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic(TOPIC, 3)
    load = LOADS[library](cluster.bootstrap_servers, TOPIC)
    await_progress(load)
    FAULTS[fault](cluster, load)
    await_progress(load)
    load.finish()
    cluster.wait_in_sync()
    check(load, stored_in(cluster, TOPIC))


@pytest.mark.parametrize("fault", ["kill_leader", "pause_leader", "kill_all"])
def test_processes_on_a_real_zookeeper_lose_nothing_either(barnabas_cluster, fault):
    cluster = barnabas_cluster(brokers=3, mode="process")
    cluster.create_topic(TOPIC, 3)
    load = LOADS["confluent-kafka"](cluster.bootstrap_servers, TOPIC)
    await_progress(load)
    FAULTS[fault](cluster, load)
    await_progress(load)
    load.finish()
    cluster.wait_in_sync()
    check(load, stored_in(cluster, TOPIC))


def test_records_sent_right_after_the_death_of_the_controller_wait_for_no_longer_than_its_session(
    barnabas_cluster,
):
    """librdkafka's admin client waits for the controller of the first metadata, and for no other."""
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic(TOPIC, 3)
    cluster.kill(cluster.controller())
    began = time.monotonic()
    produced = CliRunner().invoke(
        app, ["produce", TOPIC, "--bootstrap-server", cluster.bootstrap_servers], input="1\n2\n3\n" * 100
    )
    assert produced.exit_code == 0, produced.output
    assert time.monotonic() - began < 40.0  # librdkafka's admin client would wait for 60


def test_topics_are_made_right_after_the_death_of_the_controller(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3)
    cluster.kill(cluster.controller())
    cluster.admin().create_topic(TOPIC, 3, replication_factor=2)
    assert cluster.leader_of(TOPIC, 2) in cluster.running


def test_a_question_that_waits_for_a_broker_that_dies_is_answered_by_the_next_leader(barnabas_cluster):
    """librdkafka drops requests to a broker that is no longer in the cluster's metadata."""
    cluster = barnabas_cluster(brokers=3)
    cluster.create_topic(TOPIC)
    dies = cluster.leader_of(TOPIC)
    with Consumer(cluster.bootstrap_servers, TOPIC) as consumer, ThreadPoolExecutor(1) as asking:
        place = TopicPartition(TOPIC, 0)
        assert consumer.watermarks(place) == (0, 0)  # the connection to the leader stands
        cluster.pause(dies)
        answer = asking.submit(consumer.watermarks, place)
        time.sleep(0.5)  # for the question to be on its way; where it is not, there is less to see
        cluster.kill(dies)
        assert answer.result(60) == (0, 0)
    assert cluster.leader_of(TOPIC) != dies
