"""A cluster with a killed broker: the pages show it and its replicas."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from tests.unit.console.clusters import Cluster

from barnabas.base.errors import KafkaError
from barnabas.client.addresses import Address
from barnabas.console.pages.brokers import broker, brokers
from barnabas.console.pages.overview import overview

ALIVE, KILLED = 1, 2
PARTITIONS = 61


def partition(n, *, leader=ALIVE):
    return SimpleNamespace(
        partition_index=n, leader_id=leader, leader_epoch=0, replica_nodes=[ALIVE, KILLED], isr_nodes=[ALIVE]
    )


@pytest.fixture
def killed():
    """Broker 1 leads 61 partitions of a topic and an internal one. Broker 2, which had replicas, is dead."""
    cluster = Cluster(topics=1)
    (topic,) = cluster.metadata().topics
    topic.name, topic.partitions = "orders", [partition(n) for n in range(PARTITIONS)]
    internal = SimpleNamespace(
        name="__consumer_offsets", topic_id=bytes(16), is_internal=True, partitions=[partition(0)]
    )
    cluster.metadata().topics.insert(0, internal)
    return cluster


def test_a_killed_broker_stays_on_the_overview_and_is_gone(view_of, killed):
    told = overview(view_of(killed), {})
    rows = {row["id"]: row for row in told["brokers"]}
    assert (rows[ALIVE]["gone"], rows[ALIVE]["replicas"], rows[ALIVE]["in_sync"]) == (False, 62, 62)
    assert (rows[KILLED]["gone"], rows[KILLED]["replicas"], rows[KILLED]["in_sync"]) == (True, 62, 0)
    assert rows[KILLED]["address"] is None, "the console never heard where it was"


def test_a_killed_broker_that_the_console_has_seen_keeps_its_address(view_of, killed):
    view = view_of(killed)
    killed.known = {KILLED: Address("10.0.0.2", 9092)}
    (gone,) = [row for row in overview(view, {})["brokers"] if row["gone"]]
    assert gone["address"] == "10.0.0.2:9092"


def test_a_killed_broker_has_a_page_that_says_what_it_held(view_of, killed):
    told = broker(view_of(killed), str(KILLED), {})
    assert told["gone"] and told["replicas"] == 62 and told["leads"] == 0
    assert told["settings"] == [] and "gone" in told["settings_problem"]


def test_a_broker_that_never_was_is_no_page(view_of, killed):
    with pytest.raises(KafkaError, match="there is no broker 99"):
        broker(view_of(killed), "99", {})


def test_the_brokers_page_lists_the_killed_one_and_internal_topics_last(view_of, killed):
    told = brokers(view_of(killed), {})
    assert [(row["id"], row["gone"]) for row in told["brokers"]] == [(ALIVE, False), (KILLED, True)]
    assert told["brokers"][1]["log_dirs"] == {"directories": [], "problem": "The broker is gone."}
    assert [row["partition"] for row in told["matrix"][:2]] == ["orders-0", "orders-1"]


def test_the_matrix_of_brokers_is_shown_a_page_at_a_time(view_of, killed):
    view = view_of(killed)
    first, second = brokers(view, {}), brokers(view, {"page": "2"})
    assert (len(first["matrix"]), first["pages"], first["count"]) == (50, 2, 62)
    assert [row["partition"] for row in second["matrix"]] == [
        *(f"orders-{n}" for n in range(50, 61)),
        "__consumer_offsets-0",
    ]
    assert [row["partition"] for row in brokers(view, {"search": "offsets"})["matrix"]] == [
        "__consumer_offsets-0"
    ]


def test_topics_and_partitions_are_counted_of_the_same_topics(view_of, killed):
    told = overview(view_of(killed), {})
    assert (told["topics"], told["partitions"]) == (2, PARTITIONS + 1)
    assert told["internal"] == {"topics": 1, "partitions": 1}


def test_the_names_of_partitions_in_trouble_come_with_how_many_there_are(view_of, killed):
    told = overview(view_of(killed), {})["under_replicated"]
    assert (told["count"], len(told["names"])) == (62, 50)
