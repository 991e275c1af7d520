"""Repeats requests that fail in librdkafka only for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import confluent_kafka

T = TypeVar("T")

#: number of attempts: librdkafka drops a request once for each broker that leaves the cluster
_TRIES = 5
#: the errors after which a request is repeated, each with the pause before that, in seconds
_PAUSES = {
    confluent_kafka.KafkaError._DESTROY_BROKER: 0.0,
    confluent_kafka.KafkaError._UNKNOWN_PARTITION: 0.5,
}


def ask(question: Callable[[], T]) -> T:
    """Call `question`, repeat the call if its error may pass soon, and return the result.

    A repeated call must do no harm. These errors may pass:

    - _DESTROY_BROKER: since 2.10, librdkafka fails a request if its broker leaves the cluster's metadata. A
      repeated request can reach the next leader or coordinator.
    - _UNKNOWN_PARTITION: the topic may be new, and the broker that librdkafka asked may not know it yet.

    Raises:
        confluent_kafka.KafkaException: another error, or the fifth error of these kinds.
    """
    for _ in range(_TRIES - 1):
        try:
            return question()
        except confluent_kafka.KafkaException as error:
            pause = _PAUSES.get(error.args[0].code())
            if pause is None:
                raise
            time.sleep(pause)
    return question()
