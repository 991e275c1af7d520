"""Spark's own Kafka connector with delegation tokens: one from its options, and one
that it requests itself.
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from tests.integration.acl_broker import PASSWORD, AclBroker

from barnabas.kafka.protocol.messages.create_delegation_token import CreateDelegationTokenRequest

pytestmark = pytest.mark.timeout(300)

MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
JAAS = """KafkaClient {{
  {module} required username="{user}" password="{password}";
}};
"""
CLUSTER = "spark.kafka.clusters.ours."


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AclBroker]:
    """Start a broker with three topics: `alice` may use two of them, only super users the topic `theirs`."""
    settings = {
        "delegation.token.secret.key": "a secret of the cluster",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    }
    with AclBroker(tmp_path_factory.mktemp("tokens"), **settings) as broker:
        broker.add("alice")
        admin = AdminClient({"bootstrap.servers": broker.open_address, "log_level": 0})
        for future in admin.create_topics(
            [NewTopic(name, 2, 1) for name in ("mine_1", "mine_2", "theirs")]
        ).values():
            future.result(60)
        rules = [
            (ResourceType.TOPIC, "mine_", ResourcePatternType.PREFIXED, operation)
            for operation in (AclOperation.READ, AclOperation.WRITE)
        ]
        rules.append((ResourceType.GROUP, "spark-kafka-", ResourcePatternType.PREFIXED, AclOperation.READ))
        bindings = [
            AclBinding(kind, name, pattern, "User:alice", "*", operation, AclPermissionType.ALLOW)
            for kind, name, pattern, operation in rules
        ]
        for future in admin.create_acls(bindings).values():
            future.result(60)
        yield broker


def obtain_token(spark: SparkSession, broker: AclBroker, folder: Path) -> None:
    """Request a token as the driver does with Hadoop's security on, and store it in the user's credentials.

    The JVM's own login (a JAAS file) is used for the request. The JVMs of tasks have none, so this removes
    the login afterwards.
    """
    jvm = spark._jvm
    assert jvm is not None
    conf = spark.sparkContext._jsc.sc().conf()
    for name, value in {
        "auth.bootstrap.servers": broker.address,
        "target.bootstrap.servers.regex": ".*",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.token.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.mechanism": "SCRAM-SHA-256",
    }.items():
        conf.set(CLUSTER + name, value)
    path = folder / "jaas.conf"
    path.write_text(JAAS.format(module=MODULE, user="alice", password=PASSWORD))
    logins = jvm.javax.security.auth.login.Configuration
    jvm.System.setProperty("java.security.auth.login.config", str(path))
    logins.setConfiguration(None)
    try:
        provider = jvm.org.apache.spark.kafka010.KafkaDelegationTokenProvider()
        user = jvm.org.apache.hadoop.security.UserGroupInformation.getCurrentUser()
        credentials = jvm.org.apache.hadoop.security.Credentials()
        provider.obtainDelegationTokens(jvm.org.apache.hadoop.conf.Configuration(), conf, credentials)
        assert credentials.numberOfTokens() == 1
        user.addCredentials(credentials)
    finally:
        jvm.System.clearProperty("java.security.auth.login.config")
        logins.setConfiguration(None)


def use(spark: SparkSession, options: dict[str, str], topic: str, folder: Path) -> None:
    """Write a batch to a topic of `alice`, read it as a stream, and fail to write to another topic."""
    rows = spark.createDataFrame([(str(number),) for number in range(20)], "value string")
    rows.write.format("kafka").options(topic=topic, **options).save()
    query = (
        spark.readStream.format("kafka")
        .options(subscribe=topic, startingOffsets="earliest", **options)
        .load()
        .writeStream.format("memory")
        .queryName(topic)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    found = spark.table(topic).selectExpr("CAST(value AS STRING) AS value").collect()
    assert sorted(int(row.value) for row in found) == list(range(20))
    with pytest.raises((Py4JJavaError, PySparkException), match=r"(?i)not authorized"):
        rows.write.format("kafka").options(topic="theirs", **options).save()


def test_a_token_is_a_login_of_its_options(spark: SparkSession, broker: AclBroker, tmp_path: Path) -> None:
    wire = broker.connect("alice")
    token = wire(CreateDelegationTokenRequest())
    wire.close()
    assert token.error_code == 0
    hmac = base64.b64encode(token.hmac).decode()
    login = f'username="{token.token_id}" password="{hmac}" tokenauth="true"'
    options = {
        "kafka.bootstrap.servers": broker.address,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": f"{MODULE} required {login};",
    }
    use(spark, options, "mine_1", tmp_path)


def test_the_connector_gets_a_token_and_its_tasks_log_in_by_it(
    spark: SparkSession, broker: AclBroker, tmp_path: Path
) -> None:
    obtain_token(spark, broker, tmp_path)
    use(spark, {"kafka.bootstrap.servers": broker.address}, "mine_2", tmp_path)
