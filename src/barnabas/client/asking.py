"""Repeats requests that librdkafka drops when a broker leaves the cluster."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import confluent_kafka

T = TypeVar("T")

#: number of attempts: librdkafka drops a request once for each broker that leaves the cluster
_TRIES = 5


def ask(question: Callable[[], T]) -> T:
    """Call `question`, repeat the call if librdkafka drops it, and return the result.

    A repeated call must do no harm. Since 2.10, librdkafka fails a request with _DESTROY_BROKER if the broker
    of the request leaves the cluster's metadata. A repeated request can reach the next leader or coordinator.

    Raises:
        confluent_kafka.KafkaException: another error, or the fifth _DESTROY_BROKER.
    """
    for _ in range(_TRIES - 1):
        try:
            return question()
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() != confluent_kafka.KafkaError._DESTROY_BROKER:
                raise
    return question()
