"""Apache Kafka's own share consumer and its tool for share groups, with Barnabas."""

from __future__ import annotations

import re

import pytest
from confluent_kafka import Producer
from tests.compat.conftest import CONFIGS
from tests.integration.conftest import Wire, use_share_groups

from barnabas.testing import BarnabasBroker

CONSUMER = "org.apache.kafka.tools.consumer.ConsoleShareConsumer"
GROUPS = "org.apache.kafka.tools.consumer.group.ShareGroupCommand"


@pytest.fixture
def broker(tmp_path):
    settings = {"share.coordinator.state.topic.num.partitions": "1"}
    with BarnabasBroker(settings, data=tmp_path / "data") as broker:
        wire = Wire(broker.bootstrap_servers)
        use_share_groups(wire)
        wire.close()
        broker.create_topic("t", 1)
        yield broker


def test_the_console_share_consumer_reads_a_queue_with_transactions(java, broker):
    """A transaction's marker is a gap in the offsets that no member acknowledges."""

    def tool(main: str, *arguments: str) -> str:
        return java.run(main, "--bootstrap-server", broker.bootstrap_servers, *arguments)

    earliest = "share.auto.offset.reset=earliest"
    tool(CONFIGS, "--alter", "--entity-type", "groups", "--entity-name", "g", "--add-config", earliest)
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "transactional.id": "x"})
    producer.init_transactions()
    for transaction in range(2):
        producer.begin_transaction()
        for number in range(10):
            producer.produce("t", f"{transaction}{number}".encode())
        producer.commit_transaction()
    read = ("--topic", "t", "--group", "g", "--max-messages", "20", "--timeout-ms", "60000")
    values = [line for line in tool(CONSUMER, *read).splitlines() if re.fullmatch("[01][0-9]", line)]
    assert values == [f"{transaction}{number}" for transaction in range(2) for number in range(10)]
    described = tool(GROUPS, "--describe", "--group", "g")
    assert re.search(r"^g\s+t\s+0\s+22\s+0\s*$", described, re.MULTILINE), described
