"""The position of a stream in Spark's checkpoint: offsets, and the ids of their topics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Self, TypeAlias

from barnabas.base.types import TopicPartition
from barnabas.spark.plan import Plan
from barnabas.spark.ranges import Offsets, from_json, to_json

PositionJson: TypeAlias = dict[str, dict[str, Any]]

#: A key beside a topic's partitions, whose keys are numbers.
_ID = "id"

#: A key beside the topics; no topic can have this name.
_PLAN = "#plan"


@dataclass(frozen=True)
class Position:
    """The offset of the next record of each partition, and the ids of their topics (KIP-516).

    Its JSON is that of Spark's own Kafka connector, ``{"orders": {"0": 23, "1": 7}}``, with two additions.
    Each topic also has its id, as ``"id": "Zm9v..."``: a topic that was deleted and created again has another
    id. Older checkpoints and some brokers have no ids. At the level of the topics is the plan of the
    micro-batch that ends here, as ``"#plan"``.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    #: of the micro-batch that ends here; None if none does, and in older checkpoints
    plan: Plan | None = None

    @classmethod
    def from_json(cls, nested: Mapping[str, Mapping[str, Any]]) -> Self:
        """Parse the output of `to_json`. Raises ValueError if it is not a position."""
        topics = {topic: parts for topic, parts in nested.items() if topic != _PLAN}
        ids = {topic: str(parts[_ID]) for topic, parts in topics.items() if _ID in parts}
        numbers = {
            topic: {name: int(offset) for name, offset in parts.items() if name != _ID}
            for topic, parts in topics.items()
        }
        return cls(from_json(numbers), ids, Plan.from_json(nested[_PLAN]) if _PLAN in nested else None)

    def to_json(self) -> PositionJson:
        """Return the JSON for the checkpoint, in a fixed order."""
        nested: PositionJson = {topic: {**parts} for topic, parts in to_json(self.offsets).items()}
        for topic, parts in nested.items():
            if topic in self.topic_ids:
                parts[_ID] = self.topic_ids[topic]
        if self.plan is not None:
            nested[_PLAN] = self.plan.to_json()
        return nested

    def was_recreated(self, topic: str, ids_now: Mapping[str, str]) -> bool:
        """Whether the offsets belong to a deleted topic of this name."""
        known = self.topic_ids.get(topic)
        return known is not None and ids_now.get(topic, known) != known

    def is_same_topic(self, topic: str, ids_now: Mapping[str, str]) -> bool:
        """Whether the offsets certainly belong to the present topic of this name."""
        known = self.topic_ids.get(topic)
        return known is not None and ids_now.get(topic) == known

    def continues(self, end: Position, tp: TopicPartition) -> bool:
        """Whether the records of `tp` up to `end` begin at this position's offset."""
        offset = self.offsets.get(tp)
        return (
            offset is not None
            and offset <= end.offsets[tp]
            and not self.was_recreated(tp.topic, end.topic_ids)
        )

    def was_cut(self, end: Position, tp: TopicPartition) -> bool:
        """Whether the log of `tp` is the same and has lost its end, as after an unclean election."""
        return self.offsets.get(tp, 0) > end.offsets[tp] and self.is_same_topic(tp.topic, end.topic_ids)

    def other_starts(self, end: Position, earliest: Callable[[list[TopicPartition]], Offsets]) -> Offsets:
        """Return the first offsets of those partitions of `end` that do not begin at this position."""
        others = [tp for tp in end.offsets if not self.continues(end, tp)]
        found = earliest(others)
        return {tp: end.offsets[tp] if self.was_cut(end, tp) else found[tp] for tp in others}
