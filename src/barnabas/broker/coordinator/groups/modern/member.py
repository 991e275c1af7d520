"""The epochs of a member, and the partitions that it has."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from barnabas.base.types import TopicId

#: the member epochs of a request to join or to leave
JOIN_EPOCH = 0
LEAVE_EPOCH = -1

#: partitions by topic id; topics without partitions are left out
Partitions: TypeAlias = Mapping[TopicId, frozenset[int]]

NOTHING: Partitions = {}
