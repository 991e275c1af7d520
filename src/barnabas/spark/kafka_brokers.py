"""Requests to group coordinators, without librdkafka: its consumer does not notice a failover in time."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.brokers import Brokers
from barnabas.client.servers import Servers
from barnabas.spark.fetch_settings import parse_servers


def new_brokers(client: Mapping[str, object], timeout: float) -> Brokers:
    """The brokers that a client with these settings of librdkafka connects to.

    Args:
        timeout: seconds for each request, a failover included.

    Raises:
        ConfigError: an address is not HOST:PORT.
    """
    settings = {name: str(value) for name, value in client.items()}
    servers = ",".join(map(str, parse_servers(settings["bootstrap.servers"])))
    return Brokers(Servers(servers, settings), timeout)
