"""The output of `barnabas top` for two samples of a cluster."""

from collections import Counter

from barnabas.cli import top
from barnabas.client.admin_types import BrokerNode, ClusterDescription, PartitionDescription, TopicDescription
from barnabas.client.overview import Group, Overview


def overview(time, ends, committed, lag, isr=(1, 2)):
    partitions = (PartitionDescription(0, 1, (1, 2), isr), PartitionDescription(1, None, (2,), ()))
    return Overview(
        time,
        ClusterDescription("cluster", 1, (BrokerNode(1, "a", 9092, None), BrokerNode(2, "b", 9092, None))),
        [TopicDescription("orders", "id", False, partitions), TopicDescription("idle", "id", False, ())],
        Counter(orders=ends),
        Counter(orders=1_500_000),
        {"readers": Group("Stable", Counter(orders=committed), Counter(orders=lag))},
        0,
    )


def test_rates_come_from_two_looks():
    found = top.describe(overview(12, 300, 90, 210), overview(10, 100, 50, 50))
    orders = found["topics"][0]
    assert orders["topic"] == "orders"
    assert orders["records_per_second"] == 100
    assert found["groups"][0] == {
        "group": "readers",
        "state": "Stable",
        "topic": "orders",
        "lag": 210,
        "lag_before": 50,
        "records_per_second": 20,
    }


def test_the_first_look_knows_no_rates():
    found = top.describe(overview(12, 300, 90, 210), None)
    assert found["topics"][0]["records_per_second"] is None
    assert found["groups"][0]["records_per_second"] is None


def test_a_topic_that_was_made_again_has_no_rate():
    found = top.describe(overview(12, 3, 0, 3), overview(10, 100, 50, 50))
    assert {each["records_per_second"] for each in found["topics"] if each["topic"] == "orders"} == {None}


def test_what_is_wrong_is_counted():
    found = top.describe(overview(12, 3, 0, 3, isr=(1,)), None)
    assert found["without_leader"] == 1
    assert found["out_of_sync"] == 2
    assert [broker["out_of_sync"] for broker in found["brokers"]] == [0, 2]


def test_an_unknown_size_is_not_zero(capsys):
    found = top.describe(overview(12, 300, 90, 210), None)
    assert {each["topic"]: each["bytes"] for each in found["topics"]} == {"orders": 1_500_000, "idle": None}
    top._show(found, 5, clear=False)
    assert "0 B" not in capsys.readouterr().out


def test_a_look_is_printed_as_tables(capsys):
    found = top.describe(overview(12, 300, 90, 210), overview(10, 100, 50, 50))
    top._show(found, 5, clear=False)
    text = capsys.readouterr().out
    assert "controller 1  partitions without a leader 1, out of sync 1" in text
    assert "orders" in text
    assert "1.5 MB" in text
    assert "grows" in text
