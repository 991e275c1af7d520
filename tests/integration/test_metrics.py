"""Metrics and health of running brokers, as Prometheus and Kafka's dashboards read them."""

from __future__ import annotations

import http.client
import re
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from confluent_kafka import AcknowledgeType, Consumer, Producer, ShareConsumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.conftest import Wire, use_share_groups
from tests.integration.test_share_group_state import initialize, ready, write

from barnabas.broker.config import BrokerConfig
from barnabas.broker.metrics.catalogue import METRICS
from barnabas.broker.server.run import BrokerServer
from barnabas.client import Admin
from barnabas.testing import BarnabasCluster

#: Every kafka_* metric in the expressions and variables of Strimzi's dashboards "Strimzi Kafka" and "Strimzi
#: Kafka Exporter" (github.com/strimzi/strimzi-kafka-operator, packaging/examples/metrics/grafana-dashboards),
#: with the labels of Kafka's that they select or group by; the rest are labels that Kubernetes gives.
STRIMZI = {
    "kafka_server_replicamanager_leadercount": (),
    "kafka_controller_kafkacontroller_activecontrollercount": (),
    "kafka_controller_controllerstats_uncleanleaderelections_total": (),
    "kafka_server_replicamanager_partitioncount": (),
    "kafka_server_replicamanager_underreplicatedpartitions": (),
    "kafka_cluster_partition_atminisr": ("topic",),
    "kafka_cluster_partition_underminisr": ("topic",),
    "kafka_controller_kafkacontroller_offlinepartitionscount": (),
    "kafka_server_brokertopicmetrics_bytesin_total": ("topic",),
    "kafka_server_brokertopicmetrics_bytesout_total": ("topic",),
    "kafka_server_brokertopicmetrics_messagesin_total": ("topic",),
    "kafka_server_brokertopicmetrics_totalproducerequests_total": ("topic",),
    "kafka_server_brokertopicmetrics_failedproducerequests_total": ("topic",),
    "kafka_server_brokertopicmetrics_totalfetchrequests_total": ("topic",),
    "kafka_server_brokertopicmetrics_failedfetchrequests_total": ("topic",),
    "kafka_network_socketserver_networkprocessoravgidle_percent": (),
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent": (),
    "kafka_server_kafkaserver_linux_disk_write_bytes": (),
    "kafka_server_kafkaserver_linux_disk_read_bytes": (),
    "kafka_server_socket_server_metrics_connection_count": ("listener",),
    "kafka_log_log_size": ("topic", "partition"),
    "kafka_cluster_partition_replicascount": ("topic",),
    "kafka_topic_partitions": ("topic",),
    "kafka_topic_partition_replicas": ("topic",),
    "kafka_topic_partition_in_sync_replica": ("topic",),
    "kafka_topic_partition_under_replicated_partition": ("topic",),
    "kafka_topic_partition_leader_is_preferred": ("topic",),
    "kafka_topic_partition_current_offset": ("topic", "partition"),
    "kafka_topic_partition_oldest_offset": ("topic", "partition"),
    "kafka_consumergroup_current_offset": ("consumergroup", "topic", "partition"),
    "kafka_consumergroup_lag": ("consumergroup", "topic", "partition"),
    "kafka_exporter_build_info": (),
    # not kafka_*, and not of the JVM or the container
    "process_cpu_seconds_total": (),
    "process_open_fds": (),
}

_SERIES = re.compile(r'([a-z_]+)(?:\{((?:[a-z_]+="(?:[^"\\]|\\.)*",?)*)\})? (\S+)')
_LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')


class Series(NamedTuple):
    name: str
    labels: dict[str, str]
    value: float


def get(url: str, path: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()


def scrape(url: str, *paths: str) -> list[Series]:
    found = []
    for path in paths or ("/metrics", "/metrics/partitions"):
        status, text = get(url, path)
        assert status == 200, text
        for line in text.splitlines():
            if not line.startswith("#"):
                parts = _SERIES.fullmatch(line)
                assert parts is not None, line
                found.append(Series(parts[1], dict(_LABEL.findall(parts[2] or "")), float(parts[3])))
    return found


def value(series: list[Series], name: str, **labels: str) -> float:
    found = [each for each in series if each.name == name and each.labels.items() >= labels.items()]
    assert found, (name, labels)
    return sum(each.value for each in found)


def use(bootstrap: str, topic: str, replicas: int, group: str = "readers") -> None:
    """Write three records to each of two partitions, and let a group read one of each."""
    admin: Any = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 2, replicas)])[topic].result(60)
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition in (0, 1) * 3:
        producer.produce(topic, b"x" * 100, partition=partition)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, partition, 0) for partition in (0, 1)])
        end = time.monotonic() + 60
        read = 0
        while read < 6:
            assert time.monotonic() < end
            read += consumer.poll(0.1) is not None
        consumer.commit(
            offsets=[TopicPartition(topic, partition, 1) for partition in (0, 1)], asynchronous=False
        )
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerServer]:
    config = BrokerConfig.from_text(
        {
            "listeners": "PLAINTEXT://127.0.0.1:0",
            "log.dirs": str(tmp_path_factory.mktemp("metrics")),
            "barnabas.metrics.listener": "127.0.0.1:0",
            "offsets.topic.num.partitions": "2",
            "share.coordinator.state.topic.num.partitions": "1",
            "share.coordinator.state.topic.prune.interval.ms": "20",
            "share.coordinator.snapshot.update.records.per.snapshot": "0",
        }
    )
    with BrokerServer(config) as running:
        use(running.bootstrap_servers, "orders", 1)
        yield running


@pytest.fixture
def url(server: BrokerServer) -> str:
    assert server.metrics_url is not None
    return server.metrics_url


def test_the_share_coordinator_tells_what_it_stores_and_deletes(server: BrokerServer, url: str) -> None:
    use(server.bootstrap_servers, "t", 1, group="others")
    wire = Wire(server.bootstrap_servers)
    try:
        use_share_groups(wire)
        ready(wire)
        assert initialize(wire).error_code == 0
        prefix = "kafka_server_share_coordinator_metrics_"
        for _ in range(3):
            assert write(wire).error_code == 0
        series = scrape(url, "/metrics")
        assert value(series, "barnabas_share_partitions") == 1
        assert value(series, prefix + "write_total") == 3
        labels = {"topic": "__share_group_state", "partition": "0"}
        while not any(each.name == prefix + "last_pruned_offset" for each in series):
            series = scrape(url, "/metrics")
        assert 0 < value(series, prefix + "last_pruned_offset", **labels) <= 3
    finally:
        wire.close()


def test_share_groups_count_their_records_their_answers_and_their_dead_letters(
    server: BrokerServer, url: str
) -> None:
    admin = Admin(server.bootstrap_servers)
    admin.create_topic("jobs", 1)
    admin.create_topic("dlq.jobs", 1, configs={"errors.deadletterqueue.group.enable": "true"})
    settings = {
        "share.auto.offset.reset": "earliest",
        "errors.deadletterqueue.topic.name": "dlq.jobs",
        "share.record.lock.duration.ms": "15000",
    }
    admin.alter_configs("group", "workers", set=settings)
    producer = Producer({"bootstrap.servers": server.bootstrap_servers})
    for _ in range(4):
        producer.produce("jobs", b"x")
    producer.flush()
    consumer = ShareConsumer(
        {
            "bootstrap.servers": server.bootstrap_servers,
            "group.id": "workers",
            "share.acknowledgement.mode": "explicit",
        }
    )
    try:
        consumer.subscribe(["jobs"])
        messages: list[Any] = []
        while len(messages) < 4:
            messages += consumer.poll(0.1)
        labels = {"group": "workers", "topic": "jobs", "partition": "0"}
        series = scrape(url)
        prefix = "kafka_server_sharepartitionmetrics_"
        assert value(series, prefix + "inflightmessagecount", **labels) == 4
        assert value(series, prefix + "inflightbatchcount", **labels) >= 1
        assert value(series, prefix + "acquisitionlocktimeout_total", **labels) == 0
        assert value(series, "kafka_server_sharesessioncache_sharesessionscount") == 1
        assert value(series, "kafka_server_sharesessioncache_sharepartitionscount") == 1
        prefix = "kafka_server_sharegroupmetrics_"
        assert value(series, prefix + "partitionloadtimems_count") == 1
        fetched = {"group": "workers"}
        fetches = value(series, prefix + "requesttopicpartitionsfetchratio_count", **fetched)
        assert fetches == value(series, prefix + "topicpartitionsacquiretimems_count", **fetched) >= 1
        assert value(series, prefix + "requesttopicpartitionsfetchratio", quantile="0.999", **fetched) == 100
        prefix = "kafka_server_group_coordinator_metrics_"
        assert value(series, prefix + "group_count", protocol="share") == 1
        assert value(series, prefix + "group_count", protocol="classic") >= 1
        assert value(series, prefix + "share_group_count", state="Stable") == 1
        # the first member, and the partition that was initialized for it
        assert value(series, prefix + "share_group_rebalance_count") == 2
        assert value(series, prefix + "share_group_rebalance_rate") > 0
        answers = (
            AcknowledgeType.ACCEPT,
            AcknowledgeType.ACCEPT,
            AcknowledgeType.REJECT,
            AcknowledgeType.RELEASE,
        )
        for message, answer in zip(messages, answers, strict=True):
            consumer.acknowledge(message, answer)
        consumer.commit_sync()
        prefix = "kafka_server_sharegroupmetrics_"
        written = prefix + "deadletterqueuerecordcount_total"
        while not any(each.name == written and each.value for each in series):
            series = scrape(url)
        for kind, count in (("Accept", 2), ("Release", 1), ("Reject", 1), ("Renew", 0)):
            assert value(series, prefix + "recordacknowledgements_total", acktype=kind) == count
        for name, count in (("totalproduce", 1), ("failedproduce", 0)):
            found = value(series, f"{prefix}deadletterqueue{name}requests_total", group="workers")
            assert found == count
    finally:
        consumer.close()
        admin.close()


def test_every_expression_of_strimzis_dashboards_has_data(url: str) -> None:
    series = scrape(url)
    missing = [
        f"{name}{labels}"
        for name, labels in STRIMZI.items()
        if not any(each.name == name and set(labels) <= each.labels.keys() for each in series)
    ]
    assert not missing


def test_what_is_produced_and_consumed_is_counted(url: str) -> None:
    series = scrape(url)
    assert value(series, "kafka_server_brokertopicmetrics_messagesin_total", topic="orders") == 6
    assert value(series, "kafka_server_brokertopicmetrics_bytesin_total", topic="orders") > 600
    assert value(series, "kafka_server_brokertopicmetrics_bytesout_total", topic="orders") >= value(
        series, "kafka_server_brokertopicmetrics_bytesin_total", topic="orders"
    )
    whole = [
        each.value
        for each in series
        if each.name == "kafka_server_brokertopicmetrics_messagesin_total" and not each.labels
    ]
    assert whole[0] >= 6
    assert value(series, "kafka_network_requestmetrics_requests_total", request="Produce") >= 1
    assert value(series, "barnabas_request_seconds_count", request="Produce") == value(
        series, "kafka_network_requestmetrics_requests_total", request="Produce"
    )


def test_the_lag_of_a_group_is_told_in_records_and_in_seconds(url: str) -> None:
    series = scrape(url)
    orders = {"topic": "orders", "partition": "1"}
    assert value(series, "kafka_consumergroup_current_offset", consumergroup="readers", **orders) == 1
    assert value(series, "kafka_consumergroup_lag", consumergroup="readers", **orders) == 2
    assert value(series, "kafka_consumergroup_lag_sum", consumergroup="readers", topic="orders") == 4
    assert value(series, "kafka_consumergroup_group_lag_seconds", group="readers", **orders) >= 0


def test_only_declared_series_are_served_each_once(url: str) -> None:
    series = scrape(url)
    keys = [(each.name, tuple(sorted(each.labels.items()))) for each in series]
    assert len(set(keys)) == len(keys)
    declared = {
        *METRICS,
        *(f"{name}{suffix}" for name in METRICS for suffix in ("_bucket", "_sum", "_count")),
    }
    assert {each.name for each in series} <= declared


def test_a_metric_has_help_and_type_before_its_samples(url: str) -> None:
    for path in ("/metrics", "/metrics/partitions"):
        text = get(url, path)[1]
        told = re.findall(r"^# TYPE (\S+) \S+$", text, re.MULTILINE)
        assert len(set(told)) == len(told) > 10


def test_a_running_broker_is_healthy_and_ready(url: str) -> None:
    assert get(url, "/healthz")[0] == 200
    assert get(url, "/readyz") == (200, "ready\n")


def test_the_traffic_of_a_deleted_topic_stays_in_the_sum(server: BrokerServer, url: str) -> None:
    name = "kafka_server_brokertopicmetrics_messagesin_total"
    use(server.bootstrap_servers, "gone", 1, group="others")
    before = [each.value for each in scrape(url, "/metrics") if each.name == name and not each.labels]
    admin: Any = AdminClient({"bootstrap.servers": server.bootstrap_servers})
    admin.delete_topics(["gone"])["gone"].result(60)
    series = scrape(url, "/metrics")
    assert not [each for each in series if each.labels.get("topic") == "gone"]
    assert next(each.value for each in series if each.name == name and not each.labels) >= before[0]


def test_a_cluster_adds_up_and_a_dead_broker_shows() -> None:
    with BarnabasCluster(3, {"barnabas.metrics.listener": "127.0.0.1:0"}) as cluster:
        use(cluster.bootstrap_servers, "orders", 3)
        cluster.wait_in_sync()

        def read() -> dict[int, list[Series]]:
            return {broker: scrape(metrics_url(cluster, broker)) for broker in cluster.running}

        def total(name: str, **labels: str) -> float:
            return sum(
                each.value
                for series in read().values()
                for each in series
                if each.name == name and each.labels.items() >= labels.items()
            )

        assert total("kafka_controller_kafkacontroller_activecontrollercount") == 1
        assert total("kafka_topic_partitions", topic="orders") == 2
        assert total("kafka_topic_partition_in_sync_replica", topic="orders") == 6
        assert total("kafka_consumergroup_lag", consumergroup="readers") == 4
        assert total("kafka_topic_partition_current_offset", topic="orders") == 6
        assert total("kafka_log_log_logendoffset", topic="orders") == 18
        assert total(
            "kafka_server_brokertopicmetrics_replicationbytesout_total", topic="orders"
        ) >= 2 * total("kafka_server_brokertopicmetrics_bytesin_total", topic="orders")
        assert total("kafka_server_replicamanager_underreplicatedpartitions") == 0

        victim = next(broker for broker in cluster.brokers if broker != cluster.controller())
        cluster.kill(victim)
        end = time.monotonic() + 60
        while (
            total("kafka_topic_partition_under_replicated_partition", topic="orders") != 2
            or total("kafka_brokers") != 2
        ):
            assert time.monotonic() < end
            time.sleep(0.1)


def metrics_url(cluster: BarnabasCluster, broker: int) -> str:
    node: Any = cluster._nodes[broker]
    url: str = node._broker.monitor.responder.url
    return url
