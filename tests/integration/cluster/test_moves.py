"""Partitions that move to other brokers while clients write to them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import confluent_kafka
import pytest
from click.testing import CliRunner

from barnabas.base.types import TopicPartition
from barnabas.cli.app import app
from barnabas.client.admin import Admin
from barnabas.client.moves import Moves
from barnabas.testing import BarnabasCluster


class Load:
    """A producer that writes numbers to a topic with acks=all until it is stopped."""

    def __init__(self, cluster: BarnabasCluster, topic: str) -> None:
        self._producer = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1}
        )
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.acknowledged: list[int] = []
        self.errors: list[object] = []

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            self._producer.produce(
                self._topic, str(number), on_delivery=lambda e, m, n=number: self._delivered(n, e)
            )
            number += 1
            self._producer.poll(0.001)
        self._producer.flush(60)

    def _delivered(self, number: int, error: object) -> None:
        if error is None:
            self.acknowledged.append(number)
        else:
            self.errors.append(error)

    def go_on(self, count: int = 200) -> None:
        """Wait until `count` more records are acknowledged."""
        goal = len(self.acknowledged) + count
        wait_until(lambda: len(self.acknowledged) >= goal)


def wait_until(condition, timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def run(cluster: BarnabasCluster, *words: object, code: int = 0) -> str:
    """Run a command, and return its output."""
    result = CliRunner().invoke(
        app,
        [str(word) for word in words],
        env={"BARNABAS_BOOTSTRAP_SERVER": cluster.bootstrap_servers},
        prog_name="barnabas",
    )
    assert result.exit_code == code, (result.output, result.exception)
    return result.stdout


def read(cluster: BarnabasCluster, topic: str, count: int) -> list[int]:
    return [int(record.value or b"-1") for record in cluster.consume(topic, count)]


def _plan(folder: Path, *targets: Sequence[int]) -> Path:
    """Write a plan with new replicas for the partitions of t. Return its path."""
    moves = [{"topic": "t", "partition": n, "replicas": list(r)} for n, r in enumerate(targets)]
    path = folder / "plan.json"
    path.write_text(json.dumps({"partitions": moves}))
    return path


def folders(cluster: BarnabasCluster, broker: int) -> set[str]:
    return {path.name for path in (cluster.data / f"broker-{broker}").iterdir() if path.is_dir()}


def test_a_partition_moves_under_load_and_nothing_is_lost(barnabas_cluster, tmp_path):
    cluster = barnabas_cluster(brokers=4)
    run(cluster, "topics", "create", "t", "--replica-assignment", "1:2:3,2:3:1")
    cluster.wait_in_sync("t")
    moves = Moves(cluster.bootstrap_servers)
    plan = _plan(tmp_path, (4, 2, 3), (4, 1, 2))
    with Load(cluster, "t") as load:
        load.go_on()
        run(cluster, "topics", "reassign", "execute", plan, "--wait")
        load.go_on()
    assert load.errors == []
    held = moves.replicas_of(["t"])
    assert held[TopicPartition("t", 0)].replicas == (4, 2, 3)
    assert held[TopicPartition("t", 0)].leader == 4
    assert held[TopicPartition("t", 1)].replicas == (4, 1, 2)
    cluster.wait_in_sync("t")
    assert "moved" in run(cluster, "topics", "reassign", "verify", plan)
    wait_until(lambda: "t-0" not in folders(cluster, 1) and "t-1" not in folders(cluster, 3))
    assert sorted(read(cluster, "t", len(load.acknowledged))) == sorted(load.acknowledged)


def test_a_broker_is_drained_under_load_and_stopped(barnabas_cluster):
    cluster = barnabas_cluster(brokers=4)
    run(cluster, "topics", "create", "t", "--partitions", 8)
    with Load(cluster, "t") as load:
        load.go_on()
        run(cluster, "brokers", "drain", 2)
        load.go_on()
        cluster.stop(2)
        load.go_on()
    assert load.errors == []
    assert all(2 not in each.replicas for each in Moves(cluster.bootstrap_servers).replicas_of().values())
    assert sorted(read(cluster, "t", len(load.acknowledged))) == sorted(load.acknowledged)


def test_a_move_is_cancelled_and_the_new_replica_is_dropped(barnabas_cluster, tmp_path):
    cluster = barnabas_cluster(brokers=4)
    newcomer = next(broker for broker in cluster.brokers if broker != cluster.controller())
    start = [broker for broker in cluster.brokers if broker != newcomer]
    run(cluster, "topics", "create", "t", "--replica-assignment", ":".join(map(str, start)))
    cluster.wait_in_sync("t")
    moves = Moves(cluster.address_of(start[0]))
    cluster.partition(newcomer, start)  # what is sent between them waits, so the move does not end
    target = (newcomer, *start[1:])
    assert moves.reassign({TopicPartition("t", 0): target}) == {}
    assert moves.reassignments()[TopicPartition("t", 0)].target == target
    reached = ("--bootstrap-server", cluster.address_of(start[0]))
    assert "moving" in run(cluster, "topics", "reassign", "verify", _plan(tmp_path, target), *reached, code=1)
    run(cluster, "topics", "reassign", "cancel", "--all", *reached)
    assert moves.reassignments() == {}
    assert set(moves.replicas_of(["t"])[TopicPartition("t", 0)].replicas) == set(start)
    cluster.heal()
    cluster.wait_in_sync("t")


def test_the_throttle_of_a_broker_that_has_died_is_lifted(barnabas_cluster, tmp_path):
    cluster = barnabas_cluster(brokers=4)
    victim = next(broker for broker in cluster.brokers if broker != cluster.controller())
    others = [broker for broker in cluster.brokers if broker != victim]
    run(cluster, "topics", "create", "t", "--replica-assignment", ":".join(map(str, [victim, *others[:2]])))
    cluster.wait_in_sync("t")
    plan = _plan(tmp_path, others)
    run(cluster, "topics", "reassign", "execute", plan, "--throttle", 1_000_000)
    moves = Moves(cluster.bootstrap_servers)
    wait_until(lambda: not moves.reassignments())

    def rates():
        values = Admin(cluster.address_of(victim)).configs("broker", str(victim))
        return {value.value for value in values if "replication.throttled.rate" in value.name}

    wait_until(lambda: rates() == {"1000000"})
    cluster.kill(victim)  # it leads and holds nothing any more: only the throttle names it
    wait_until(lambda: victim not in {node.id for node in moves.cluster().nodes})
    assert "moved" in run(cluster, "topics", "reassign", "verify", plan)
    cluster.restart(victim)
    assert rates() == {str(2**63 - 1)}


def test_preferred_leaders_lead_again_after_a_restart(barnabas_cluster):
    cluster = barnabas_cluster(brokers=3)
    run(cluster, "topics", "create", "t", "--replica-assignment", "1:2:3")
    cluster.stop(1)
    assert cluster.leader_of("t") in (2, 3)
    under = run(cluster, "topics", "describe", "--under-replicated-partitions")
    assert "1,2,3" in under
    assert "under-replicated" in under
    cluster.restart(1)
    cluster.wait_in_sync("t")
    assert cluster.leader_of("t") != 1
    assert "elected leaders of 1 partitions" in run(cluster, "topics", "elect", "t:0")
    assert cluster.leader_of("t") == 1


@pytest.mark.parametrize("victim", ["controller", "leader", "newcomer"])
def test_a_move_goes_on_when_a_broker_dies_meanwhile(barnabas_cluster, victim):
    cluster = barnabas_cluster(brokers=4)
    newcomer = next(b for b in cluster.brokers if b != cluster.controller())
    others = [b for b in cluster.brokers if b != newcomer]
    leader = next(b for b in others if b != cluster.controller())
    start = [leader, *(b for b in others if b != leader)]
    run(cluster, "topics", "create", "t", "--replica-assignment", ":".join(map(str, start)))
    moves = Moves(cluster.bootstrap_servers)
    with Load(cluster, "t") as load:
        load.go_on()
        dies = {"controller": cluster.controller(), "leader": leader, "newcomer": newcomer}[victim]
        target = [newcomer, *start[1:]]
        assert moves.reassign({TopicPartition("t", 0): target}) == {}
        cluster.kill(dies)
        load.go_on()
        cluster.restart(dies)
        wait_until(lambda: not moves.reassignments())
        load.go_on()
    assert load.errors == []
    assert list(moves.replicas_of(["t"])[TopicPartition("t", 0)].replicas) == target
    cluster.wait_in_sync("t")
    assert sorted(read(cluster, "t", len(load.acknowledged))) == sorted(load.acknowledged)
