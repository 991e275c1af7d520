"""Questions about groups by Spark's processes, for which librdkafka is of no use once a broker has died."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.client.brokers import Brokers
from barnabas.client.servers import Servers
from barnabas.spark.fetch_settings import parse_servers


def new_brokers(client: Mapping[str, object], timeout: float) -> Brokers:
    """For the cluster that a client with these settings of librdkafka connects to.

    Args:
        timeout: seconds for each question, a failover included.

    Raises:
        ConfigError: an address is not HOST:PORT.
    """
    settings = {name: str(value) for name, value in client.items()}
    servers = ",".join(map(str, parse_servers(settings["bootstrap.servers"])))
    return Brokers(Servers(servers, settings), timeout)
