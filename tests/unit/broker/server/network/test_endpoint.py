import pytest

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.endpoint import (
    Endpoint,
    advertised_endpoints,
    bound_endpoints,
    broker_login,
    check_protection,
    inter_broker_listener,
)


def machine_name():
    return "laptop.lan"


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("PLAINTEXT://127.0.0.1:9092", Endpoint("PLAINTEXT", "127.0.0.1", 9092)),
        ("internal://broker-1.example:0", Endpoint("INTERNAL", "broker-1.example", 0)),
        ("PLAINTEXT://:9092", Endpoint("PLAINTEXT", "", 9092)),
        ("PLAINTEXT://[::1]:9092", Endpoint("PLAINTEXT", "::1", 9092)),
    ],
)
def test_endpoints_are_read_and_written_alike(text, endpoint):
    assert Endpoint.parse(text, "listeners") == endpoint
    assert Endpoint.parse(str(endpoint), "listeners") == endpoint


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1:9092", "PLAINTEXT://host", "PLAINTEXT://host:70000", "A://b:c"]
)
def test_what_is_no_endpoint_is_refused_with_an_example(text):
    with pytest.raises(ConfigError, match=r"PLAINTEXT://127\.0\.0\.1:9092"):
        Endpoint.parse(text, "listeners")


def test_two_listeners_of_one_name_are_refused():
    config = BrokerConfig(
        listeners=("A://127.0.0.1:1", "a://127.0.0.1:2"), listener_security_protocol_map=A_AND_B
    )
    with pytest.raises(ConfigError, match="twice"):
        bound_endpoints(config)


#: what names of listeners other than the protocols' own need
A_AND_B = "A:PLAINTEXT,B:PLAINTEXT"

SECURE = ("SSL", "SASL_SSL", "SASL_PLAINTEXT", "ssl", "Sasl_Ssl")


@pytest.mark.parametrize("name", SECURE)
def test_a_name_of_a_protocol_means_that_protocol(name):
    config = BrokerConfig(
        listeners=("PLAINTEXT://127.0.0.1:0", f"{name}://127.0.0.1:9093"),
        advertised_listeners=(f"{name}://broker-1:9094",),
    )
    bound = bound_endpoints(config)
    assert [endpoint.protocol for endpoint in bound] == ["PLAINTEXT", name.upper()]
    assert advertised_endpoints(config, bound, machine_name)[1] == Endpoint(
        name.upper(), "broker-1", 9094, name.upper()
    )


@pytest.mark.parametrize("protocol", SECURE)
@pytest.mark.parametrize("name", ["PLAINTEXT", "A", "a"])
def test_any_name_can_be_mapped_to_a_protocol(name, protocol):
    config = BrokerConfig(
        listeners=(f"{name}://127.0.0.1:0",), listener_security_protocol_map=f"{name} : {protocol}"
    )
    (endpoint,) = bound_endpoints(config)
    assert endpoint.protocol == protocol.upper()
    assert endpoint.has_sasl == protocol.upper().startswith("SASL")
    assert endpoint.has_tls == protocol.upper().endswith("SSL")


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
def test_brokers_of_a_cluster_need_a_user_for_a_listener_with_sasl(protocol):
    config = BrokerConfig(listeners=(f"{protocol}://127.0.0.1:0",), zookeeper_connect="zk:2181")
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config is not set"):
        inter_broker_listener(config, bound_endpoints(config))
    for given in (
        "x",
        'a.ScramLoginModule required username="b";',
        'a.Other required username="b" password="c";',
    ):
        with pytest.raises(ConfigError, match=r"sasl\.jaas\.config cannot be"):
            broker_login(config.replace(sasl_jaas_config=given))
    jaas = 'a.ScramLoginModule required username="broker" password="secret";'
    named = config.replace(sasl_jaas_config=jaas)
    assert inter_broker_listener(named, bound_endpoints(named)).protocol == protocol
    assert broker_login(named) == ("broker", "secret")
    with pytest.raises(ConfigError, match=r"sasl\.enabled\.mechanisms has SCRAM-SHA-256"):
        broker_login(named.replace(sasl_mechanism_inter_broker_protocol="PLAIN"))
    alone = BrokerConfig(listeners=(f"{protocol}://127.0.0.1:0",))
    assert inter_broker_listener(alone, bound_endpoints(alone)).name == protocol


def test_brokers_reach_each_other_by_a_protocol():
    listeners = ("PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0")
    config = BrokerConfig(listeners=listeners, security_inter_broker_protocol="SSL")
    assert inter_broker_listener(config, bound_endpoints(config)).name == "SSL"
    for values in ({"inter_broker_listener_name": "SSL"}, {"security_inter_broker_protocol": "SASL_SSL"}):
        with pytest.raises(ConfigError, match=r"security\.inter\.broker\.protocol"):
            inter_broker_listener(config.replace(**values), bound_endpoints(config))


def test_a_name_that_says_nothing_of_its_protocol_needs_the_map():
    with pytest.raises(ConfigError, match=r"does not have CLIENTS; add CLIENTS:PLAINTEXT"):
        bound_endpoints(BrokerConfig(listeners=("CLIENTS://127.0.0.1:0",)))
    mapped = BrokerConfig(
        listeners=("CLIENTS://127.0.0.1:0",), listener_security_protocol_map="clients:plaintext"
    )
    assert bound_endpoints(mapped) == [Endpoint("CLIENTS", "127.0.0.1", 0)]


@pytest.mark.parametrize("text", ["A", "A:", ":SSL", "A:TLS", "A:PLAINTEXT,A:SSL", "A:SSL,a:PLAINTEXT"])
def test_a_map_of_protocols_that_cannot_be_read_is_refused(text):
    with pytest.raises(ConfigError, match=r"listener\.security\.protocol\.map=.*write NAME:PROTOCOL"):
        bound_endpoints(BrokerConfig(listener_security_protocol_map=f"PLAINTEXT:PLAINTEXT,{text}"))


def test_clients_are_told_the_bound_port_and_the_advertised_host():
    config = BrokerConfig(
        listeners=("A://0.0.0.0:0", "B://127.0.0.1:0"),
        advertised_listeners=("A://example.org:0",),
        listener_security_protocol_map=A_AND_B,
    )
    bound = [Endpoint("A", "0.0.0.0", 4001), Endpoint("B", "127.0.0.1", 4002)]
    assert advertised_endpoints(config, bound, machine_name) == [
        Endpoint("A", "example.org", 4001),
        Endpoint("B", "127.0.0.1", 4002),
    ]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_a_listener_on_every_interface_is_told_by_the_machines_name(host):
    config = BrokerConfig(listeners=(f"PLAINTEXT://{host}:9092",))
    told = advertised_endpoints(config, bound_endpoints(config), machine_name)
    assert [endpoint.address for endpoint in told] == ["laptop.lan:9092"]


@pytest.mark.parametrize("host", ["", "0.0.0.0", "[::]"])
def test_an_address_that_no_client_can_use_is_not_advertised(host):
    config = BrokerConfig(advertised_listeners=(f"PLAINTEXT://{host}:9092",))
    with pytest.raises(ConfigError, match=r"advertised\.listeners=PLAINTEXT://.* use a name"):
        advertised_endpoints(config, bound_endpoints(config), machine_name)


def test_an_advertised_name_that_is_not_bound_is_refused():
    config = BrokerConfig(
        advertised_listeners=("B://127.0.0.1:1",),
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,B:PLAINTEXT",
    )
    with pytest.raises(ConfigError, match="B, which listeners does not"):
        advertised_endpoints(config, bound_endpoints(config), machine_name)


@pytest.mark.parametrize(
    ("named", "listeners", "expected"),
    [
        (None, ("A://127.0.0.1:1", "PLAINTEXT://127.0.0.1:2"), "PLAINTEXT"),
        (None, ("B://127.0.0.1:1", "A://127.0.0.1:2"), "B"),
        ("b", ("A://127.0.0.1:1", "B://127.0.0.1:2"), "B"),
    ],
)
def test_brokers_reach_each_other_by_the_listener_that_is_named(named, listeners, expected):
    settings = {} if named is None else {"inter_broker_listener_name": named}
    config = BrokerConfig(
        listeners=listeners, listener_security_protocol_map=f"{A_AND_B},PLAINTEXT:PLAINTEXT", **settings
    )
    assert inter_broker_listener(config, bound_endpoints(config)).name == expected


def test_brokers_cannot_reach_each_other_by_a_listener_that_is_not_there():
    config = BrokerConfig(inter_broker_listener_name="INTERNAL")
    with pytest.raises(ConfigError, match=r"inter\.broker\.listener\.name=INTERNAL .*PLAINTEXT"):
        inter_broker_listener(config, bound_endpoints(config))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("listener.name.other.ssl.client.auth", "listeners has no such name: it has PLAINTEXT, SSL"),
        ("listener.name.plaintext.ssl.client.auth", "speaks PLAINTEXT"),
        ("listener.name.ssl.sasl.enabled.mechanisms", "speaks SSL"),
    ],
)
def test_what_is_set_for_a_listener_that_cannot_honour_it_is_refused(name, words):
    listeners = {"listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0"}
    config = BrokerConfig.from_text({**listeners, name: "PLAIN" if "sasl" in name else "required"})
    with pytest.raises(ConfigError, match=words):
        check_protection(config, bound_endpoints(config))
