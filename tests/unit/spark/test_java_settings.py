"""Options for Spark's own connector stay valid: they are used, translated, or ignored with a log line."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ConfigError
from barnabas.spark import java_settings
from barnabas.spark.clients import check_producer_settings, producer_settings
from barnabas.spark.fetch_settings import FetchSettings
from barnabas.spark.options import ReadOptions, WriteOptions

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
READ = {**SERVERS, "subscribe": "orders"}
WRITE = {**SERVERS, "topic": "orders"}
JAAS = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="ann" password="pssst";'


@pytest.fixture(autouse=True)
def forget_what_was_noted() -> None:
    java_settings.note.cache_clear()
    java_settings._warn_of_plans.cache_clear()


@pytest.mark.parametrize(
    "name",
    [
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        *(f"kafka.{name}" for name in java_settings.IGNORED_IN_READING),
    ],
)
def test_what_tunes_nothing_here_is_ignored_when_reading_with_one_line(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        options = ReadOptions.parse({**READ, name: "5"}, streaming=True)
        FetchSettings.parse(options.client)
    assert options == ReadOptions.parse(READ, streaming=True)
    (line,) = caplog.messages
    assert line.startswith(f"option {name} is ignored: ")


@pytest.mark.parametrize("name", java_settings.IGNORED_IN_WRITING)
def test_what_tunes_nothing_here_is_ignored_when_writing_with_one_line(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    options = WriteOptions.parse({**WRITE, f"kafka.{name}": "5"}, streaming=True)
    assert options == WriteOptions.parse(WRITE, streaming=True)
    (line,) = caplog.messages
    assert line.startswith(f"option kafka.{name} is ignored: ")


@pytest.mark.parametrize(
    ("given", "translated"),
    [
        ({"max.request.size": "2000000"}, {"message.max.bytes": "2000000"}),
        ({"buffer.memory": "33554432"}, {"queue.buffering.max.kbytes": "32768"}),
        ({"partitioner.class": "org.x.DefaultPartitioner"}, {"partitioner": "murmur2_random"}),
        ({"partitioner.class": "org.x.RoundRobinPartitioner"}, {"partitioner": "random"}),
        ({"send.buffer.bytes": "131072"}, {"socket.send.buffer.bytes": "131072"}),
        (
            {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": JAAS},
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "ann",
                "sasl.password": "pssst",
            },
        ),
    ],
)
def test_settings_of_javas_producer_are_translated(given: dict[str, str], translated: dict[str, str]) -> None:
    options = WriteOptions.parse({**WRITE, **{f"kafka.{n}": v for n, v in given.items()}}, streaming=False)
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092"} | translated
    check_producer_settings(producer_settings(options.client))


def test_a_login_of_javas_reads_too_and_says_where_a_password_belongs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    login = {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    options = ReadOptions.parse({**READ, **login, "kafka.sasl.jaas.config": JAAS}, streaming=False)
    assert FetchSettings.parse(options.client).security.sasl is not None
    assert "name that by barnabas.config" in caplog.text
    assert "pssst" not in caplog.text


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"kafka.partitioner.class": "com.shop.ByRegion"},
            "give each row its partition in the column partition",
        ),
        ({"kafka.buffer.memory": "much"}, "kafka.buffer.memory=much is not allowed: write a whole number"),
        ({"kafka.sasl.jaas.config": "pssst"}, "option kafka.sasl.jaas.config cannot be read"),
    ],
)
def test_what_cannot_be_translated_is_refused_with_the_cure(options: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words) as refused:
        WriteOptions.parse({**WRITE, **options}, streaming=False)
    assert "pssst" not in str(refused.value)
