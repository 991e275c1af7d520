"""Settings of single listeners, and of SASL mechanisms on a listener."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.config.declaration import Update
from barnabas.broker.config.layers import Layer, Source

GIVEN = {
    "connections.max.reauth.ms": "1000",
    "listener.name.OUTSIDE.connections.max.reauth.ms": "2000",
    "listener.name.outside.scram-sha-512.connections.max.reauth.ms": "3000",
    "listener.name.outside.ssl.client.auth": "required",
}


def test_a_listener_has_its_own_settings_and_all_others():
    config = BrokerConfig.from_text(GIVEN)
    outside, inside = config.for_listener("OUTSIDE"), config.for_listener("INSIDE")
    assert (outside.connections_max_reauth_ms, outside.ssl_client_auth) == (2000, "required")
    assert inside is config and (inside.connections_max_reauth_ms, inside.ssl_client_auth) == (1000, "none")
    assert config.for_listener("OUTSIDE") is outside


def test_a_mechanism_overrides_its_listener():
    config = BrokerConfig.from_text(GIVEN)
    assert config.for_listener("OUTSIDE", "SCRAM-SHA-512").connections_max_reauth_ms == 3000
    assert config.for_listener("OUTSIDE", "PLAIN").connections_max_reauth_ms == 2000
    assert config.for_listener("INSIDE", "SCRAM-SHA-512").connections_max_reauth_ms == 1000


def test_whether_a_listener_has_a_limit_of_its_own():
    rate = "max.connection.creation.rate"
    config = BrokerConfig.from_text({rate: "7", f"listener.name.outside.{rate}": "7", **GIVEN})
    assert config.has_own("OUTSIDE", rate)
    assert not config.has_own("INSIDE", rate)
    assert not config.has_own("OUTSIDE", "max.connections")
    assert not BrokerConfig.from_text({rate: "7"}).has_own("OUTSIDE", rate)


@pytest.mark.parametrize("limit", ["max.connections", "max.connection.creation.rate"])
def test_the_limits_of_a_listener_may_change_while_the_broker_runs(limit):
    name = f"listener.name.outside.{limit}"
    assert BrokerConfig.find(name).update is Update.PER_BROKER
    layers = [Layer(Source.DYNAMIC_BROKER_CONFIG, {name: "3"}), *BrokerConfig.from_text({name: "9"}).layers]
    changed = BrokerConfig.from_layers(layers, {})
    assert changed.for_listener("OUTSIDE").value(limit) == 3


def test_a_changed_copy_keeps_them():
    config = BrokerConfig.from_text(GIVEN).replace(node_id=7)
    assert config.node_id == 7
    assert config.for_listener("OUTSIDE").ssl_client_auth == "required"


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        (
            "listener.name.outside.ssl.client.auth",
            "maybe",
            r"listener\.name\.outside\.ssl\.client\.auth=maybe",
        ),
        ("listener.name.outside.num.partitions", "3", "not supported"),
        ("listener.name.outside.plain.ssl.client.auth", "none", "not supported"),
        ("listener.name.outside.gssapi.sasl.oauthbearer.sub.claim.name", "sub", "not supported"),
        ("listener.name.outside.ssl.nothing", "3", "not supported"),
    ],
)
def test_what_cannot_be_set_for_a_listener_is_refused(name, value, words):
    with pytest.raises(ConfigError, match=words):
        BrokerConfig.from_text({name: value})


def test_a_password_is_not_repeated():
    config = BrokerConfig.from_text({"listener.name.a.ssl.key.password": "sesame"})
    assert BrokerConfig.find("listener.name.a.ssl.key.password").sensitive
    assert config.for_listener("A").ssl_key_password == "sesame"
