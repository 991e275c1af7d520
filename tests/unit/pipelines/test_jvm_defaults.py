"""The conditions under which Spark's JVM need not verify its classes."""

from __future__ import annotations

import pytest

from barnabas.pipelines.session import jvm_defaults


def test_the_installed_spark_alone_is_trusted() -> None:
    (made,) = jvm_defaults({"spark.sql.shuffle.partitions": "2"}, {"JAVA_HOME": "/opt/java"}).items()
    name, options = made
    assert name == "spark.driver.defaultJavaOptions"  # what a user says in extraJavaOptions comes after it
    assert "-XX:-BytecodeVerificationRemote" in options


@pytest.mark.parametrize(
    ("settings", "environment"),
    [
        ({"spark.jars": "driver.jar"}, {}),
        ({"spark.jars.packages": "org.mariadb.jdbc:mariadb-java-client:3.5.1"}, {}),
        ({"spark.driver.extraClassPath": "/opt/jars/*"}, {}),
        ({"spark.driver.defaultJavaOptions": "-Xss4m"}, {}),
        ({"spark.plugins": "org.example.Plugin"}, {}),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--jars driver.jar pyspark-shell"}),
        ({}, {"SPARK_HOME": "/opt/spark"}),
        ({}, {"SPARK_CONF_DIR": "/etc/spark"}),
    ],
)
def test_classes_of_others_are_verified(settings: dict[str, str], environment: dict[str, str]) -> None:
    assert jvm_defaults(settings, environment) == {}
