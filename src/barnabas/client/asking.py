"""Questions that librdkafka drops: asked again."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import confluent_kafka

T = TypeVar("T")

#: a question is dropped once for each broker that leaves the cluster meanwhile
_TRIES = 5


def ask(question: Callable[[], T]) -> T:
    """The answer to a question that does no harm when it is asked twice.

    Since 2.10, librdkafka gives up what waits for a broker as soon as the cluster's metadata no longer has
    that broker, with _DESTROY_BROKER, though the next leader could answer.

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
