"""Questions that librdkafka drops: asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import confluent_kafka

T = TypeVar("T")

#: a question is dropped once for each broker that leaves the cluster meanwhile
_TRIES = 5


def ask(question: Callable[[], T]) -> T:
    """Return the answer to a question that is harmless when asked twice.

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
