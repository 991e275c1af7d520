"""Creates and checks the topic of a registry, which has one partition and is compacted."""

from __future__ import annotations

import asyncio
import logging

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.client import Admin
from barnabas.client.addresses import parse_servers
from barnabas.client.errors import AuthenticationError, ClientError
from barnabas.client.reach import require_broker

logger = logging.getLogger(__name__)

_RETRY_S = 0.5
_LOOK_S = 1.0


class TopicUnfitError(BarnabasError):
    """A topic cannot store schemas, because it would delete old records, or has several partitions."""


async def wait_for_broker(bootstrap_servers: str) -> None:
    """Wait until a broker answers. If none does at first, log this once.

    Raises:
        ClientError: an address is not HOST:PORT.
        AuthenticationError: the broker rejects the login, or the client rejects the broker's certificate.
    """
    parse_servers(bootstrap_servers)
    waited = False
    while True:
        try:
            await asyncio.to_thread(require_broker, bootstrap_servers, _LOOK_S)
            return
        except AuthenticationError:
            raise
        except ClientError:
            pass
        if not waited:
            logger.warning("no broker answers at %s yet; the registry waits", bootstrap_servers)
            waited = True
        await asyncio.sleep(_RETRY_S)


def prepare(admin: Admin, topic: str, replication_factor: int | None) -> None:
    """Create the topic of a registry, or check the existing one. This blocks.

    A new topic has `replication_factor` replicas; None means the brokers' default.

    Raises:
        TopicUnfitError: the topic has several partitions, or its cleanup.policy is not compact.
        BarnabasError: the broker refuses the request, or does not answer.
    """
    try:
        admin.create_topic(
            topic, 1, replication_factor=replication_factor, configs={"cleanup.policy": "compact"}
        )
        return
    except KafkaError as error:
        if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:
            raise
    (description,) = admin.describe_topics([topic])
    if len(description.partitions) != 1:
        raise TopicUnfitError(
            f"topic {topic} has {len(description.partitions)} partitions, and the order of schemas needs 1: "
            "name another with --topic"
        )
    (policy,) = (c.value for c in admin.configs("topic", topic) if c.name == "cleanup.policy")
    if policy != "compact":
        raise TopicUnfitError(
            f"cleanup.policy={policy} of topic {topic} would lose schemas: barnabas configs alter --topic "
            f"{topic} --set cleanup.policy=compact"
        )
