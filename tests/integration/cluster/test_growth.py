"""A cluster that gains two brokers and loses one while clients of all kinds work."""

from __future__ import annotations

import json
import threading
import time

import pytest
from confluent_kafka import Consumer
from tests.integration.cluster.copying import Copy, committed_in
from tests.integration.cluster.load import ConfluentLoad, await_progress, check, stored_in
from tests.integration.registry.conftest import Registry, record

from barnabas.base.types import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.moves import Moves
from barnabas.registry.server import RegistryServer, RegistrySettings, claim

OLD, NEW = 1, (4, 5)
RECORDS = 600
RACKS = ["a", "b", "c", "a", "b"]
SETTINGS = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}


@pytest.fixture
def cluster(barnabas_cluster):
    """Start three brokers of a cluster of five. The other two do not run yet."""
    return barnabas_cluster(brokers=3, later=2, racks=RACKS, settings=SETTINGS)


def grow(cluster):
    for broker in NEW:
        cluster.restart(broker)


def spread(cluster):
    """Move every partition from the old broker to the new ones, and wait for the end."""
    moves = Moves(cluster.bootstrap_servers)
    targets = {}
    for number, (partition, holders) in enumerate(sorted(moves.replicas_of().items())):
        newcomer = NEW[number % len(NEW)]
        targets[partition] = [newcomer if broker == OLD else broker for broker in holders.replicas]
    refused = moves.reassign(targets)
    assert refused == {}
    eventually(lambda: not moves.reassignments())
    cluster.wait_in_sync()
    assert all(OLD not in holders.replicas for holders in moves.replicas_of().values())


def shrink(cluster):
    cluster.stop(OLD)


def eventually(condition, timeout=60):
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


class Reader:
    """A member of a group of the consumer protocol, in a rack, which commits automatically."""

    def __init__(self, servers, topic):
        self.values = set()
        self._stopping = threading.Event()
        self._settings = {
            "bootstrap.servers": servers,
            "group.id": "readers",
            "group.protocol": "consumer",
            "client.rack": "b",
            "auto.offset.reset": "earliest",
            "log_level": 0,
        }
        self._thread = threading.Thread(target=self._run, args=[topic], daemon=True)
        self._thread.start()

    def _run(self, topic):
        consumer = Consumer(self._settings)
        consumer.subscribe([topic])
        while not self._stopping.is_set():
            for message in consumer.consume(500, 0.2):
                if message.error() is None:
                    self.values.add(int(message.value()))
        consumer.close()

    def finish(self):
        self._stopping.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def test_producers_groups_and_transactions_go_on_while_a_cluster_grows_and_shrinks(cluster):
    for topic in ("events", "orders", "invoices"):
        cluster.create_topic(topic, 3)
    with cluster.producer() as producer:
        for number in range(RECORDS):
            producer.send("orders", str(number), key=str(number % 8))
    load = ConfluentLoad(cluster.bootstrap_servers, "events")
    reader = Reader(cluster.bootstrap_servers, "events")
    copy = Copy(cluster.bootstrap_servers, "orders", "invoices")
    copy.await_copied(20)
    for step in (grow, spread, shrink):
        step(cluster)
        await_progress(load, 50)
    copy.await_copied(RECORDS)
    copy.finish()
    load.finish()
    eventually(lambda: reader.values >= {record.number for record in load.acknowledged})
    reader.finish()
    check(load, stored_in(cluster, "events"))
    assert sorted(committed_in(cluster, "invoices")) == list(range(RECORDS))


def test_what_was_deleted_and_compacted_is_so_when_a_broker_that_came_later_leads(cluster):
    cluster.create_topic("pruned")
    compacted = {"cleanup.policy": "compact", "segment.bytes": "16384", "min.cleanable.dirty.ratio": "0.01"}
    cluster.create_topic("latest", configs=compacted)
    with cluster.producer() as producer:
        for number in range(300):
            producer.send("latest", str(number), key=str(number % 10))
            producer.send("pruned", str(number), key="k")
    Admin(cluster.bootstrap_servers).delete_records({TopicPartition("pruned", 0): 250})
    grow(cluster)
    spread(cluster)
    shrink(cluster)
    moves = Moves(cluster.bootstrap_servers)
    led = [TopicPartition(topic, 0) for topic in ("pruned", "latest")]
    held = moves.replicas_of(["pruned", "latest"])
    moves.reassign({place: sorted(held[place].replicas, reverse=True) for place in led})
    moves.elect(led)
    eventually(lambda: all(moves.replicas_of()[place].leader in NEW for place in led))
    assert [record.number for record in stored_in(cluster, "pruned")[0]] == list(range(250, 300))
    last = {record.key: record.number for record in stored_in(cluster, "latest")[0]}
    assert last == {str(key): 290 + key for key in range(10)}


def test_a_topic_that_was_made_anew_is_not_mixed_with_the_log_of_a_broker_that_had_left(cluster):
    cluster.create_topic("t", 1)
    cluster.produce("t", *map(str, range(20)))
    cluster.wait_in_sync("t")
    grow(cluster)
    shrink(cluster)
    admin = Admin(cluster.bootstrap_servers)
    admin.delete_topic("t")
    cluster.create_topic("t", 1)
    cluster.produce("t", "new")
    cluster.restart(OLD)
    moves = Moves(cluster.bootstrap_servers)
    partition = TopicPartition("t", 0)
    moves.reassign({partition: [OLD, *NEW]})
    eventually(lambda: not moves.reassignments())
    moves.elect([partition])
    eventually(lambda: moves.replicas_of(["t"])[partition].leader == OLD)
    assert [record.text for record in cluster.consume("t", 1)] == ["new"]


def test_a_registry_keeps_its_schemas_and_gives_no_id_twice_while_its_cluster_grows_and_shrinks(cluster):
    def started():
        return RegistryServer(RegistrySettings(cluster.bootstrap_servers), claim("127.0.0.1:0"))

    known = {}
    with started() as server:
        registry = Registry(server, "_schemas", None)
        for number, step in enumerate((lambda _: None, grow, spread, shrink)):
            step(cluster)
            schema = json.dumps(record({"name": f"f{number}", "type": "int"}))
            path = f"/subjects/s{number}/versions"
            eventually(
                lambda path=path, schema=schema: registry("POST", path, {"schema": schema}).status == 200
            )
            known[registry("GET", f"{path}/latest").body["id"]] = number
    assert sorted(known.values()) == list(range(4))
    with started() as server:  # reads everything anew
        registry = Registry(server, "_schemas", None)
        for schema_id, number in known.items():
            assert registry("GET", f"/subjects/s{number}/versions/latest").body["id"] == schema_id


def test_settings_of_the_cluster_hold_on_brokers_that_join_it(cluster):
    admin = Admin(cluster.bootstrap_servers)
    admin.alter_configs("broker", "", set={"log.retention.ms": "123456789"})
    grow(cluster)
    for broker in NEW:
        configs = {
            config.name: config.value
            for config in Admin(cluster.address_of(broker)).configs("broker", str(broker))
        }
        assert configs["log.retention.ms"] == "123456789"
