"""The programs of Barnabas on a cluster whose brokers are killed or cut off. `make kills` runs many seeds."""

from __future__ import annotations

import json
import os
import random
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from tests.integration.registry.conftest import Registry, record

from barnabas.client.ship import Shipper
from barnabas.client.ship_state import HEADER, decode_header
from barnabas.registry.server import RegistryServer, RegistrySettings, claim
from barnabas.testing import BarnabasCluster

SEEDS = int(os.environ.get("BARNABAS_KILL_SEEDS", "1"))
KILLS = 5
LINES, SCHEMAS = 4000, 60
#: a follower that is cut off leaves the ISR soon
QUICK = {"replica.lag.time.max.ms": "2000"}
#: seconds; reached in failure only
PATIENT = 120.0

pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.skipif(
        not os.environ.get("BARNABAS_THOROUGH"), reason="BARNABAS_THOROUGH=1 runs it: it is slow"
    ),
]


Harm = Callable[[BarnabasCluster, int, float], None]


def kill(cluster: BarnabasCluster, broker: int, seconds: float) -> None:
    cluster.kill(broker)
    time.sleep(seconds)
    cluster.restart(broker)


def cut_off(cluster: BarnabasCluster, broker: int, seconds: float) -> None:
    """Cut a broker off from the others. Clients and the metadata store can still reach it."""
    cluster.partition(broker, [other for other in cluster.brokers if other != broker])
    time.sleep(seconds)
    cluster.heal()


HARMS = pytest.mark.parametrize("harm", [kill, cut_off], ids=["killed", "cut off"])


@contextmanager
def harming(cluster: BarnabasCluster, seed: int, harm: Harm) -> Iterator[threading.Event]:
    """Cause a fault of one broker after the other, also of leaders and coordinators. The event is set at the
    end.
    """
    chance, over = random.Random(seed), threading.Event()

    def run() -> None:
        try:
            for _ in range(KILLS):
                # sooner, or later, than a session ends
                harm(cluster, chance.choice(cluster.brokers), chance.choice((0, 4)))
                cluster.wait_in_sync(timeout=PATIENT)
        finally:
            over.set()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield over
    finally:
        thread.join()


@HARMS
@pytest.mark.parametrize("seed", range(SEEDS))
def test_brokers_harmed_under_a_shipper_lose_and_repeat_nothing(barnabas_cluster, tmp_path, seed, harm):
    cluster = barnabas_cluster(brokers=3, settings=QUICK)
    cluster.create_topic("lines")
    log = tmp_path / "app.log"
    log.touch()
    shipper = Shipper(cluster.bootstrap_servers, "lines", [log], state_dir=tmp_path / "state", follow=True)
    shipping = threading.Thread(target=shipper.run)
    shipping.start()
    written = 0
    try:
        with harming(cluster, seed, harm) as over:
            while not over.is_set() or written < LINES:
                with log.open("a") as file:
                    file.writelines(f"line {number}\n" for number in range(written, written + 20))
                written += 20
                time.sleep(0.02)
    finally:
        shipper.stop()
        shipping.join()
    Shipper(cluster.bootstrap_servers, "lines", [log], state_dir=tmp_path / "state").run()  # the rest
    records = cluster.consume("lines", written, timeout=PATIENT)
    assert [found.json()["message"] for found in records] == [f"line {n}" for n in range(written)]
    numbers = [decode_header(dict(found.headers)[HEADER])[0] for found in records]
    assert numbers == list(range(1, written + 1))


@HARMS
@pytest.mark.parametrize("seed", range(SEEDS))
def test_brokers_harmed_under_a_registry_lose_no_schema_and_give_no_id_twice(barnabas_cluster, seed, harm):
    cluster = barnabas_cluster(brokers=3, settings=QUICK)

    def started() -> RegistryServer:
        return RegistryServer(RegistrySettings(cluster.bootstrap_servers), claim("127.0.0.1:0"))

    known: dict[int, str] = {}
    with started() as server:
        registry = Registry(server, "_schemas", None)
        with harming(cluster, seed, harm) as over:
            number = 0
            while not over.is_set() or number < SCHEMAS:
                subject = f"s{number}"
                schema = record({"name": f"f{number}", "type": "int"})
                answer = registry("POST", f"/subjects/{subject}/versions", {"schema": json.dumps(schema)})
                if answer.status == 200:  # else it may be registered or not, and is tried again
                    assert known.setdefault(answer.body["id"], subject) == subject
                    number += 1
                else:
                    assert answer.status >= 500, answer
                    time.sleep(0.1)
    with started() as server:  # reads everything anew
        registry = Registry(server, "_schemas", None)
        for schema_id, subject in known.items():
            answer = registry("GET", f"/subjects/{subject}/versions/latest")
            assert (answer.status, answer.body["id"]) == (200, schema_id)
