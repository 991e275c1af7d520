import pytest

from barnabas.config import BrokerConfig
from barnabas.errors import ConfigError
from barnabas.server.network.endpoint import Endpoint, advertised_endpoints, bound_endpoints


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
def test_a_listener_named_for_tls_or_sasl_is_refused_with_the_cure(name):
    config = BrokerConfig(listeners=("PLAINTEXT://127.0.0.1:0", f"{name}://broker-1:9093"))
    with pytest.raises(
        ConfigError, match=rf"listeners={name.upper()}://broker-1:9093 .*use PLAINTEXT://broker-1:9093"
    ):
        bound_endpoints(config)


@pytest.mark.parametrize("name", SECURE)
def test_an_advertised_listener_named_for_tls_or_sasl_is_refused(name):
    config = BrokerConfig(advertised_listeners=(f"{name}://broker-1:9093",))
    with pytest.raises(
        ConfigError, match=rf"advertised\.listeners={name.upper()}://.* TLS and SASL are not there"
    ):
        advertised_endpoints(config, bound_endpoints(config), machine_name)


@pytest.mark.parametrize("protocol", SECURE)
@pytest.mark.parametrize("name", ["PLAINTEXT", "A", "a"])
def test_any_name_that_is_mapped_to_tls_or_sasl_is_refused(name, protocol):
    config = BrokerConfig(
        listeners=(f"{name}://127.0.0.1:0",), listener_security_protocol_map=f"{name} : {protocol}"
    )
    with pytest.raises(ConfigError, match=f"would have to speak {protocol.upper()}"):
        bound_endpoints(config)


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
