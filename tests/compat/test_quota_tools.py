"""kafka-configs for users, clients and addresses: it prints the same with Barnabas as with Kafka."""

from __future__ import annotations

from typing import Any

import pytest
from bench.peers import Peer
from tests.compat.conftest import CONFIGS, Java, ToolFailed

pytestmark = pytest.mark.timeout(300)


#: what is set, in this order, and described afterwards
ENTITIES = [
    (("--entity-type", "users", "--entity-name", "carol"), "producer_byte_rate=1024,consumer_byte_rate=2048"),
    (("--entity-type", "users", "--entity-default"), "request_percentage=50"),
    (("--entity-type", "clients", "--entity-name", "shop"), "controller_mutation_rate=10"),
    (
        (
            "--entity-type",
            "users",
            "--entity-name",
            "carol",
            "--entity-type",
            "clients",
            "--entity-name",
            "shop",
        ),
        "producer_byte_rate=512",
    ),
    (("--entity-type", "ips", "--entity-name", "192.0.2.7"), "connection_creation_rate=5"),
]


@pytest.fixture
def both(java: Java, broker: Peer, kafka: Peer) -> Any:
    """Run kafka-configs with the broker under test and with Apache Kafka, and require the same output."""

    def run(*words: str) -> str:
        said = []
        for peer in (broker, kafka):
            lines = java.run(CONFIGS, "--bootstrap-server", peer.bootstrap, *words).splitlines()
            said.append("\n".join(sorted(lines)))
        assert said[0] == said[1]
        return said[0]

    return run


def test_kafka_configs_sets_shows_and_removes_quotas(both: Any) -> None:
    for whose, quotas in ENTITIES:
        both("--alter", *whose, "--add-config", quotas)
    for whose, quotas in ENTITIES:
        described = both("--describe", *whose)
        for quota in quotas.split(","):
            assert quota in described
    for whose, quotas in ENTITIES:
        names = ",".join(quota.partition("=")[0] for quota in quotas.split(","))
        both("--alter", *whose, "--delete-config", names)
    assert "connection_creation_rate" not in both("--describe", *ENTITIES[-1][0])


def test_kafka_configs_makes_shows_and_removes_users(both: Any) -> None:
    carol = ("--entity-type", "users", "--entity-name", "carol")
    both("--alter", *carol, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=wonderland]")
    assert "SCRAM-SHA-256=iterations=8192" in both("--describe", *carol)
    both("--alter", *carol, "--delete-config", "SCRAM-SHA-256")
    assert "SCRAM-SHA-256" not in both("--describe", *carol)


def test_a_quota_that_cannot_be_is_refused(java: Java, broker: Peer) -> None:
    entity = ("--entity-type", "ips", "--entity-name", "192.0.2.7")
    with pytest.raises(ToolFailed, match="connection_creation_rate"):
        java.run(
            CONFIGS,
            *("--bootstrap-server", broker.bootstrap, "--alter", *entity),
            *("--add-config", "connection_creation_rate=-5"),
        )
