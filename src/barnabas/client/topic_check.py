"""Checks that a topic exists, before a client sends records to it."""

from __future__ import annotations

import time
from functools import partial

import confluent_kafka

from barnabas.base.text import shown
from barnabas.client.asking import ask
from barnabas.client.errors import ClientError, translate
from barnabas.client.reach import explain_silence

#: The longest time until a new topic exists, in seconds.
_CREATION = 3.0
#: The longest time until a broker answers, in seconds.
_ANSWER_S = 5.0


def invalid_topic_name(topic: str) -> ClientError:
    """Return the error for a name that librdkafka does not accept: an empty or a very long one."""
    return ClientError(
        f"'{shown(topic)}' is not a valid topic name: use 1 to 249 ASCII letters and digits, '.', '_' and '-'"
    )


def ensure_topic(producer: confluent_kafka.Producer, topic: str, servers: str) -> int:
    """Return the number of the topic's partitions. Wait up to three seconds for a topic that does not exist.

    The request also lets the broker create the topic, if the broker's settings allow that. Without this
    check, librdkafka would wait half a minute for a topic that does not exist. `servers` has the addresses of
    brokers, for the texts of errors.

    Raises:
        ClientError: no broker answers, the name is not valid, or the topic does not exist after three
            seconds.
        KafkaError: the broker rejects the request.
    """
    deadline = time.monotonic() + _CREATION
    while True:
        try:
            metadata = ask(partial(producer.list_topics, topic, timeout=_ANSWER_S)).topics[topic]
        except RuntimeError:
            raise invalid_topic_name(topic) from None
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() < -1:
                raise explain_silence(servers, _ANSWER_S) from None
            raise translate(error) from None
        if metadata.error is None and metadata.partitions:
            return len(metadata.partitions)
        passing = metadata.error is None or metadata.error.code() in (
            confluent_kafka.KafkaError.UNKNOWN_TOPIC_OR_PART,
            confluent_kafka.KafkaError.LEADER_NOT_AVAILABLE,
        )
        if not passing:
            raise translate(metadata.error)
        if time.monotonic() > deadline:
            raise ClientError(
                f"there is no topic {topic}: create it with `barnabas topics create {topic} "
                f"--bootstrap-server {servers}`"
            )
        time.sleep(0.05)
