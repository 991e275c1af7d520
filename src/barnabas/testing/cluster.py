"""Shared by all clusters for tests: topics, and clients of `barnabas.client`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from barnabas.client import Admin, Consumer, Producer, Record


class Cluster:
    """A running cluster; `bootstrap_servers` is ``host:port``, for any Kafka client."""

    def __init__(self, bootstrap_servers: str) -> None:
        self._bootstrap_servers = bootstrap_servers

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` to give to any Kafka client."""
        return self._bootstrap_servers

    def admin(self, **settings: Any) -> Admin:
        """Return an `Admin` of `barnabas.client` for this cluster."""
        from barnabas.client import Admin

        return Admin(self.bootstrap_servers, **settings)

    def producer(self, **settings: Any) -> Producer:
        """Return a `Producer` of `barnabas.client` for this cluster: use it in a with block."""
        from barnabas.client import Producer

        return Producer(self.bootstrap_servers, **settings)

    def consumer(self, *topics: str, group: str | None = None, **settings: Any) -> Consumer:
        """Return a `Consumer` of `barnabas.client` for this cluster: use it in a with block."""
        from barnabas.client import Consumer

        return Consumer(self.bootstrap_servers, *topics, group=group, **settings)

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic; return its name."""
        self.admin().create_topic(name, partitions, configs=configs)
        return name

    def produce(self, topic: str, *values: object) -> None:
        """Send values (bytes, text, or anything JSON takes) and wait until they are stored."""
        with self.producer() as producer:
            for value in values:
                producer.send(topic, value)

    def consume(self, topic: str, count: int, *, timeout: float = 30.0) -> Sequence[Record]:
        """The first `count` records of a topic. Raises ClientError when fewer come in `timeout` seconds."""
        with self.consumer(topic) as consumer:
            return consumer.take(count, timeout)


class TemporaryCluster(Cluster):
    """A cluster that runs for as long as the `with` block lasts."""

    def __init__(self) -> None:
        super().__init__("")

    def start(self) -> Self:
        """Start it and wait until it serves."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop it and remove its temporary data."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
