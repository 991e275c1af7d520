"""Asks single brokers for the metadata of a topic, without a client library."""

from __future__ import annotations

from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponseTopic,
)

REQUEST_SECONDS = 2.0


def topic_at(server: str, topic: str) -> MetadataResponseTopic | None:
    """Return the topic as one broker describes it; None if it gives no answer or does not know the topic."""
    host, _, port = server.rpartition(":")
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    try:
        with BrokerConnection(host, int(port), REQUEST_SECONDS) as connection:
            (found,) = connection.ask(request).topics
    except ClientError:
        return None
    return None if found.error_code else found


def newest_epochs(bootstrap: str, topic: str) -> dict[int, int]:
    """Return the highest leader epoch of each partition that any broker knows.

    The result is empty unless more than half of the brokers know the topic, all with the same id.
    """
    servers = bootstrap.split(",")
    found = [told for server in servers if (told := topic_at(server, topic)) is not None]
    if 2 * len(found) <= len(servers) or len({told.topic_id for told in found}) > 1:
        return {}
    epochs: dict[int, int] = {}
    for partition in (partition for told in found for partition in told.partitions):
        known = epochs.get(partition.partition_index, -1)
        epochs[partition.partition_index] = max(known, partition.leader_epoch)
    return epochs
