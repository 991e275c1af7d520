"""Rules for the names of topics."""

from __future__ import annotations

import re
from collections.abc import Collection
from itertools import chain

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.text import shown

MAX_LENGTH = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Raise KafkaError INVALID_TOPIC_EXCEPTION unless `name` is valid."""
    if not name:
        hint = "it is empty"
    elif name in (".", ".."):
        hint = "it means a folder"
    elif len(name) > MAX_LENGTH:
        hint = f"it is longer than {MAX_LENGTH} characters"
    elif not _LEGAL.fullmatch(name):
        hint = "use only ASCII letters and digits, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"'{shown(name)}' is not a valid topic name: {hint}")


def collision_key(name: str) -> str:
    """Return the form that a topic's name has in names of metrics: '.' becomes '_'.

    Two topics collide if they have the same form.
    """
    return name.replace(".", "_")


class Collisions:
    """The names with which new topics must not collide.

    Only names with '.' or '_' can collide. The first check of such a name makes an index of all other names,
    which later checks use.
    """

    def __init__(self, existing: Collection[str]) -> None:
        self._existing = existing
        self._added: list[str] = []
        self._by_key: dict[str, str] | None = None

    def check(self, name: str) -> None:
        """Raise KafkaError INVALID_TOPIC_EXCEPTION if `name` collides with another name."""
        if "." not in name and "_" not in name:
            return
        if self._by_key is None:
            self._by_key = {collision_key(other): other for other in chain(self._existing, self._added)}
        other = self._by_key.get(collision_key(name), name)
        if other != name:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION,
                f"'{name}' collides with the topic '{other}': '.' and '_' count as one in names of metrics",
            )

    def add(self, name: str) -> None:
        """Add `name` to the existing names."""
        if self._by_key is None:
            self._added.append(name)
        else:
            self._by_key[collision_key(name)] = name
