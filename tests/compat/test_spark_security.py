"""The data source on Apache Kafka with passwords and ACLs: the permissions that it needs, and its errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from bench.peers import Kafka
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from tests.compat.secure_kafka import secure_settings

from barnabas.base.errors import BarnabasError
from barnabas.spark import lookup
from barnabas.spark.batch_reader import TopicReader
from barnabas.spark.exactly_once import WriteId, write_once
from barnabas.spark.lookup import BrokerUnreachableError
from barnabas.spark.options import ReadOptions, WriteOptions
from barnabas.spark.record_sink import DeliveryError
from barnabas.spark.writer import write_batches

Options = dict[str, str]

USERS = {"admin": "admins-password", "job": "jobs-password"}


class SecureKafka(Kafka):
    """Apache Kafka with logins by password and with ACLs."""

    settings = secure_settings(USERS)


def credentials(kafka: Kafka, user: str, password: str | None = None) -> Options:
    return {
        "bootstrap.servers": kafka.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": password or USERS[user],
        "log_level": "0",
    }


def allow(kind: ResourceType, name: str, *operations: AclOperation, prefix: bool = False) -> list[AclBinding]:
    pattern = ResourcePatternType.PREFIXED if prefix else ResourcePatternType.LITERAL
    return [
        AclBinding(kind, name, pattern, "User:job", "*", operation, AclPermissionType.ALLOW)
        for operation in operations
    ]


@pytest.fixture(scope="module")
def secure(classpath: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """Start Apache Kafka with two topics. The user `job` may only read the first one, and write to it exactly
    once.
    """
    kafka = SecureKafka(Path(tmp_path_factory.mktemp("secure")))
    kafka.start()
    try:
        admin = AdminClient(credentials(kafka, "admin"))
        for future in admin.create_topics([NewTopic("open", 1, 1), NewTopic("closed", 1, 1)]).values():
            future.result(60)
        rights = [
            *allow(ResourceType.TOPIC, "open", AclOperation.READ, AclOperation.WRITE),
            *allow(ResourceType.GROUP, "barnabas-spark-", AclOperation.READ, prefix=True),
            *allow(ResourceType.TRANSACTIONAL_ID, "barnabas-spark-", AclOperation.WRITE, prefix=True),
        ]
        for future in admin.create_acls(rights).values():
            future.result(30)
        any_of_job = AclBindingFilter(
            ResourceType.ANY,
            None,
            ResourcePatternType.ANY,
            "User:job",
            None,
            AclOperation.ANY,
            AclPermissionType.ANY,
        )
        while len(admin.describe_acls(any_of_job).result(30)) < len(
            rights
        ):  # the broker learns of them later
            time.sleep(0.05)
        yield kafka
    finally:
        kafka.stop()


def rows(*values: str) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"value": values})])


def reader(client: Options, topic: str) -> TopicReader:
    options = {f"kafka.{name}": value for name, value in client.items()}
    return TopicReader(ReadOptions.parse({**options, "subscribe": topic}, streaming=False))


def values(client: Options, topic: str) -> list[bytes]:
    source = reader(client, topic)
    batches = [batch for task in source.partitions() for batch in source.read(task)]
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_a_job_needs_its_topics_and_the_prefix_of_its_groups_and_transactions(secure: Kafka) -> None:
    client = credentials(secure, "job")
    write_batches(WriteOptions(client, "open"), rows("a"))
    for _ in range(2):
        write_once(WriteOptions(client, "open", exactly_once=True), WriteId("sink", 0, 0), rows("b"))
    assert values(client, "open") == [b"a", b"b"]


def test_what_is_not_allowed_is_named(secure: Kafka) -> None:
    client = credentials(secure, "job")
    with pytest.raises(BarnabasError, match=r"cannot look up topic closed: Not authorised for the topic"):
        values(client, "closed")
    with pytest.raises(DeliveryError, match=r"cannot write to closed.*authorization failed"):
        write_batches(WriteOptions(client, "closed"), rows("a"))


def test_a_wrong_password_is_named(secure: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_TIMEOUT_S", 5)
    with pytest.raises(BrokerUnreachableError, match="Authentication failed") as caught:
        values(credentials(secure, "job", "guessed"), "open")
    assert "guessed" not in str(caught.value)
