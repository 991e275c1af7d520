"""Requests about quotas of users, client ids and addresses, which librdkafka does not support.

In each function, `servers` are the addresses of brokers, and `timeout` is the time limit in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from barnabas.client.brokers import ask_once
from barnabas.client.errors import check_code
from barnabas.kafka.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from barnabas.kafka.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest

#: names of the limited user, client id or IP address, by "user", "client-id" or "ip"; the name None is the
#: default for those without their own quota
Entity: TypeAlias = Mapping[str, str | None]


def describe_quotas(servers: str, timeout: float) -> list[tuple[Entity, dict[str, float]]]:
    """Return all quotas: each entity (user, client id or address), and its limits by name.

    `servers` are the addresses of brokers (``host:port,...``); `timeout` is the time limit in seconds.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers.
    """
    answer = ask_once(servers, timeout, DescribeClientQuotasRequest())
    check_code(answer.error_code, answer.error_message)
    return [
        (
            {part.entity_type: part.entity_name for part in entry.entity},
            {value.key: value.value for value in entry.values},
        )
        for entry in answer.entries or ()
    ]


def alter_quotas(servers: str, timeout: float, entity: Entity, changes: Mapping[str, float | None]) -> None:
    """Set an entity's quotas to the values in `changes`. Remove quotas with the value None.

    `servers` are the addresses of brokers (``host:port,...``); `timeout` is the time limit in seconds.
    `entity` has names by "user", "client-id" or "ip"; the name None is the default for all names without a
    quota.

    Raises:
        KafkaError: the broker rejected the request. ClientError: no broker answers.
    """
    entry = EntryData(
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in entity.items()],
        ops=[
            OpData(key=key, value=0.0 if value is None else value, remove=value is None)
            for key, value in changes.items()
        ],
    )
    (result,) = ask_once(servers, timeout, AlterClientQuotasRequest(entries=[entry])).entries
    check_code(result.error_code, result.error_message)
