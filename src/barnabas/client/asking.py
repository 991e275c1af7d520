"""Repeats requests that librdkafka drops when a broker leaves the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import confluent_kafka

T = TypeVar("T")

#: a question is dropped once for each broker that leaves the cluster meanwhile
_TRIES = 5


def ask(question: Callable[[], T]) -> T:
    """Return the result of a request that can be repeated without harm.

    Since 2.10, librdkafka fails a request that waits for a broker as soon as that broker leaves the cluster's
    metadata. The error is _DESTROY_BROKER, though the next leader could answer.

    Raises:
        confluent_kafka.KafkaException: any other error.
    """
    for _ in range(_TRIES - 1):
        try:
            return question()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError._DESTROY_BROKER:
                raise
    return question()
