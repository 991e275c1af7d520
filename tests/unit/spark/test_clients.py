"""Settings kafka.*: the client gets them unchanged, and its errors name the option."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ConfigError
from barnabas.spark.clients import (
    check_producer_settings,
    consumer_settings,
    new_consumer,
    producer_settings,
    transaction_settings,
)

GIVEN = {
    "bootstrap.servers": "127.0.0.1:1",
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "SCRAM-SHA-256",
    "sasl.username": "ann",
    "sasl.password": "pssst",
    "client.id": "mine",
    "log_level": "0",
}


def test_security_settings_reach_every_client_unchanged() -> None:
    for settings in (consumer_settings(GIVEN), producer_settings(GIVEN), transaction_settings(GIVEN, "t")):
        assert {name: settings[name] for name in GIVEN} == GIVEN
    new_consumer(consumer_settings(GIVEN)).close()
    check_producer_settings(transaction_settings(GIVEN, "t"))


def test_a_setting_goes_before_the_data_sources_default_but_not_before_what_it_must_hold() -> None:
    settings = consumer_settings({**GIVEN, "fetch.wait.max.ms": "7", "enable.partition.eof": "false"})
    assert settings["fetch.wait.max.ms"] == "7"
    assert settings["enable.partition.eof"] is True
    assert producer_settings({**GIVEN, "linger.ms": "1"})["linger.ms"] == "1"


@pytest.mark.parametrize(
    ("name", "value", "idempotent"),
    [
        ("acks", "1", False),
        ("request.required.acks", "0", False),
        ("retries", "0", False),
        ("max.in.flight.requests.per.connection", "6", False),
        ("acks", "-1", True),
        ("retries", "3", True),
        ("max.in.flight", "5", True),
    ],
)
def test_a_producer_is_idempotent_unless_it_is_asked_for_what_rules_that_out(
    name: str, value: str, idempotent: bool
) -> None:
    settings = producer_settings({**GIVEN, name: value})
    assert settings["enable.idempotence"] is idempotent
    check_producer_settings(settings)
    both = producer_settings({**GIVEN, name: value, "enable.idempotence": "true"})
    assert both["enable.idempotence"] == "true"


def test_a_delivery_may_take_as_long_as_its_transaction() -> None:
    short = transaction_settings({**GIVEN, "transaction.timeout.ms": "1000"}, "t")
    check_producer_settings(short)
    assert "delivery.timeout.ms" not in short


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        (
            "no.such.setting",
            "1",
            "option kafka.no.such.setting=1 is not allowed: No such configuration property",
        ),
        ("security.protocol", "tls", "option kafka.security.protocol=tls is not allowed: Invalid value"),
        (
            "fetch.wait.max.ms",
            "-5",
            "option kafka.fetch.wait.max.ms=-5 is not allowed: Configuration property",
        ),
    ],
)
def test_what_the_client_refuses_is_named_as_the_option_in_one_line(
    name: str, value: str, shown: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        new_consumer(consumer_settings({**GIVEN, name: value}))
    assert str(caught.value).startswith(shown)
    assert "\n" not in str(caught.value)


def test_exactly_once_needs_an_idempotent_producer() -> None:
    with pytest.raises(ConfigError, match=r"transactional\.id` requires `enable\.idempotence=true`"):
        check_producer_settings(transaction_settings({**GIVEN, "enable.idempotence": "false"}, "t"))
