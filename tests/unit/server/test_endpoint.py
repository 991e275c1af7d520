import pytest

from barnabas.config import BrokerConfig
from barnabas.errors import ConfigError
from barnabas.server.endpoint import Endpoint, advertised_endpoints, bound_endpoints


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
    config = BrokerConfig(listeners=("A://127.0.0.1:1", "a://127.0.0.1:2"))
    with pytest.raises(ConfigError, match="twice"):
        bound_endpoints(config)


def test_clients_are_told_the_bound_port_and_the_advertised_host():
    config = BrokerConfig(
        listeners=("A://0.0.0.0:0", "B://127.0.0.1:0"), advertised_listeners=("A://example.org:0",)
    )
    bound = [Endpoint("A", "0.0.0.0", 4001), Endpoint("B", "127.0.0.1", 4002)]
    assert advertised_endpoints(config, bound) == [
        Endpoint("A", "example.org", 4001),
        Endpoint("B", "127.0.0.1", 4002),
    ]


def test_an_address_that_no_client_can_use_is_not_advertised():
    config = BrokerConfig(listeners=("A://0.0.0.0:9092",))
    with pytest.raises(ConfigError, match=r"advertised\.listeners=A://HOST:9092"):
        advertised_endpoints(config, bound_endpoints(config))


def test_an_advertised_name_that_is_not_bound_is_refused():
    config = BrokerConfig(advertised_listeners=("B://127.0.0.1:1",))
    with pytest.raises(ConfigError, match="B, which listeners does not"):
        advertised_endpoints(config, bound_endpoints(config))
