"""An exactly-once sink reads its progress from the servers to which its producer writes."""

from __future__ import annotations

import pytest

from barnabas.spark.exactly_once import _new_brokers


@pytest.mark.parametrize(
    ("servers", "addresses"),
    [
        ("a:1, b:2,", [("a", 1), ("b", 2)]),
        ("a", [("a", 9092)]),
        ("[::1]:5", [("::1", 5)]),
        ("[::1]", [("::1", 9092)]),
        ("SASL_SSL://a:1", [("a", 1)]),
    ],
)
def test_servers_are_written_as_librdkafka_takes_them(servers: str, addresses: list[tuple[str, int]]) -> None:
    assert _new_brokers({"bootstrap.servers": servers})._bootstrap == addresses


def test_settings_of_tls_go_with_the_servers() -> None:
    asked = _new_brokers({"bootstrap.servers": "SSL://a", "security.protocol": "ssl", "acks": "all"})
    security = asked.servers.security
    assert security is not None
    assert security.tls is not None
