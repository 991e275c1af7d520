"""A record that a consumer has received."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Self

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, Message

from barnabas.base.types import TopicPartition


@dataclass(slots=True)  # not frozen: making one would take three times as long
class Record:
    """One record of a topic. `timestamp_ms` is in ms since 1970; None if the record has no timestamp."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()

    @classmethod
    def from_message(cls, message: Message, **more: Any) -> Self:
        """Return the record in a message of librdkafka. `more` are fields of a subclass."""
        kind, timestamp = message.timestamp()
        return cls(
            message.topic() or "",
            message.partition() or 0,
            message.offset() or 0,
            None if kind == TIMESTAMP_NOT_AVAILABLE else timestamp,
            message.key(),
            message.value(),
            tuple(message.headers() or ()),
            **more,
        )

    @property
    def topic_partition(self) -> TopicPartition:
        """The topic and partition of the record."""
        return TopicPartition(self.topic, self.partition)

    @property
    def text(self) -> str | None:
        """The value as UTF-8, in which invalid bytes become backslash escapes; None for a null value."""
        return None if self.value is None else self.value.decode("utf-8", "backslashreplace")

    @property
    def key_text(self) -> str | None:
        """The key as UTF-8, in which invalid bytes become backslash escapes; None without a key."""
        return None if self.key is None else self.key.decode("utf-8", "backslashreplace")

    def json(self) -> Any:
        """Return the value read as JSON; None for a null value. Raises ValueError if it is not JSON."""
        return None if self.value is None else json.loads(self.value)
