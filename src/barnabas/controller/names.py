"""Which names a topic may have."""

from __future__ import annotations

import re
from collections.abc import Iterable

from barnabas.errors import ErrorCode, KafkaError

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION unless `name` is legal."""
    if not name:
        cure = "it is empty"
    elif name in (".", ".."):
        cure = "it means a folder"
    elif len(name) > MAX_LENGTH:
        cure = f"it is longer than {MAX_LENGTH} characters"
    elif not _LEGAL.fullmatch(name):
        cure = "use only ASCII letters and digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{name}' is no name for a topic: {cure}")


def collision_key(name: str) -> str:
    """Equal for two names that metric names cannot tell apart, since '.' is written as '_' there."""
    return name.replace(".", "_")


def check_collision(name: str, existing: Iterable[str]) -> None:
    """Raises KafkaError INVALID_TOPIC_EXCEPTION when `name` collides with another of `existing`."""
    if "." not in name and "_" not in name:
        return
    key = collision_key(name)
    for other in existing:
        if other != name and collision_key(other) == key:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"'{name}' collides with the topic '{other}': '.' and '_' count as one in names of metrics",
            )
