"""Reads committed offsets from group coordinators, without librdkafka.

librdkafka's consumer does not notice a failover of the coordinator in time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from barnabas.base.errors import BarnabasError
from barnabas.base.types import TopicPartition
from barnabas.client.brokers import Brokers
from barnabas.client.consumer_groups import Committed, committed
from barnabas.client.servers import Servers
from barnabas.spark.fetch_settings import parse_servers


def new_brokers(client: Mapping[str, object], timeout: float) -> Brokers:
    """Return a client of the brokers, for settings in librdkafka's form.

    Args:
        timeout: seconds for each request, including a failover.

    Raises:
        ConfigError: an address is not HOST:PORT.
    """
    settings = {name: str(value) for name, value in client.items()}
    servers = ",".join(map(str, parse_servers(settings["bootstrap.servers"])))
    return Brokers(Servers(servers, settings), timeout)


def group_offsets(
    brokers: Brokers, group: str, *, only: Iterable[TopicPartition] | None = None, stable: bool = False
) -> dict[TopicPartition, Committed]:
    """Return a group's committed offsets, by partition. Partitions without an offset are left out.

    Args:
        only: the partitions to read; None for all that have an offset.
        stable: whether to wait while an open transaction can change one of the offsets.

    Raises:
        BarnabasError: the coordinator rejects the request, or does not answer.
    """
    try:
        return brokers.ask_coordinator(group, lambda to, _: committed(to, group, only=only, stable=stable))
    except BarnabasError as error:
        raise BarnabasError(f"cannot read the offsets of group {group}: {error}") from None
