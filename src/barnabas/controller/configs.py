"""Settings of topics and brokers, changed while they run."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.config import TopicConfig
from barnabas.errors import ConfigError, ErrorCode, KafkaError


def check_topic_config(texts: Mapping[str, str | None]) -> None:
    """Raises KafkaError INVALID_CONFIG unless a topic may be given these settings."""
    for name, text in texts.items():
        if text is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name} has no value: give one, or leave it out")
        try:
            TopicConfig.find(name).parse(text)
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
