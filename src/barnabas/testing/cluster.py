"""The base classes of all clusters for tests. They create topics, and clients of `barnabas.client`."""

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
        """Return ``host:port``, which any Kafka client accepts."""
        return self._bootstrap_servers

    def admin(self, **settings: Any) -> Admin:
        """Return an `Admin` of `barnabas.client` for this cluster. `settings` are those of `Admin`."""
        from barnabas.client import Admin

        return Admin(self.bootstrap_servers, **settings)

    def producer(self, **settings: Any) -> Producer:
        """Return a `Producer` of `barnabas.client` for this cluster. Use it in a with block.

        `settings` are those of `Producer`.
        """
        from barnabas.client import Producer

        return Producer(self.bootstrap_servers, **settings)

    def consumer(self, *topics: str, group: str | None = None, **settings: Any) -> Consumer:
        """Return a `Consumer` of `barnabas.client` for this cluster. Use it in a with block.

        All arguments are those of `Consumer`.
        """
        from barnabas.client import Consumer

        return Consumer(self.bootstrap_servers, *topics, group=group, **settings)

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic with this number of partitions and the settings `configs`, and return its name.

        Raises KafkaError (TOPIC_ALREADY_EXISTS) if there is a topic with this name.
        """
        self.admin().create_topic(name, partitions, configs=configs)
        return name

    def produce(self, topic: str, *values: object) -> None:
        """Send values (bytes, text, or any JSON value), and wait until they are stored."""
        with self.producer() as producer:
            for value in values:
                producer.send(topic, value)

    def consume(self, topic: str, count: int, *, timeout: float = 30.0) -> Sequence[Record]:
        """Return the first `count` records that arrive from the start of a topic's partitions.

        Raises ClientError if the topic has fewer records after `timeout` seconds.
        """
        with self.consumer(topic) as consumer:
            return consumer.take(count, timeout)


class TemporaryCluster(Cluster):
    """A cluster that runs while the `with` block runs."""

    def __init__(self) -> None:
        super().__init__("")

    def start(self) -> Self:
        """Start the cluster, and wait until it serves."""
        raise NotImplementedError

    def close(self) -> None:
        """Stop the cluster, and remove its temporary data."""
        raise NotImplementedError

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()
