"""The position of a stream in Spark's checkpoint: offsets, topic ids, and the plan of the micro-batch."""

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


def offsets_of(nested: Mapping[str, Mapping[str, Any]]) -> Offsets:
    """Return the offsets in the output of `Position.to_json`, whatever version of Barnabas made its plan.

    Raises ValueError if the argument is not a position.
    """
    return from_json(
        {
            topic: {name: int(offset) for name, offset in parts.items() if name != _ID}
            for topic, parts in nested.items()
            if topic != _PLAN
        }
    )


@dataclass(frozen=True)
class Position:
    """The offset of the next record of each partition, and the id of each topic (KIP-516).

    As JSON, a position has the form of Spark's own Kafka connector, with two additions: ``id`` and ``#plan``.

        {"orders": {"0": 23, "1": 7, "id": "Zm9v..."}, "#plan": {...}}

    - ``id`` is the topic's id. A topic that was deleted and created again has another id. The id is missing
      if the checkpoint is from an older version of Barnabas, or if the broker does not know topic ids.
    - ``#plan`` is the plan of the micro-batch that ends at this position. It may be missing.
    """

    offsets: Offsets
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    #: plan of the micro-batch that ends here; None if none ends here, and in older checkpoints
    plan: Plan | None = None

    @classmethod
    def from_json(cls, nested: Mapping[str, Mapping[str, Any]]) -> Self:
        """Parse the output of `to_json`.

        Raises:
            ValueError: the argument is not a position.
            PlanError: the plan in it is from a later version of Barnabas.
        """
        ids = {topic: str(parts[_ID]) for topic, parts in nested.items() if topic != _PLAN and _ID in parts}
        plan = Plan.from_json(nested[_PLAN]) if _PLAN in nested else None
        return cls(offsets_of(nested), ids, plan)

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
        """Whether the topic was deleted and created again since this position: its id has changed.

        `ids_now` has the present ids by topic. If an id is missing, the result is False.
        """
        known = self.topic_ids.get(topic)
        return known is not None and ids_now.get(topic, known) != known

    def is_same_topic(self, topic: str, ids_now: Mapping[str, str]) -> bool:
        """Whether the topic certainly was not deleted since this position: its id is the same as then.

        `ids_now` has the present ids by topic. The result is False if this position or `ids_now` has no id of
        the topic.
        """
        known = self.topic_ids.get(topic)
        return known is not None and ids_now.get(topic) == known

    def continues(self, end: Position, tp: TopicPartition) -> bool:
        """Whether the records of `tp` up to `end` begin at this position's offset.

        They do not if `tp` is new, its topic was created again, or its log was truncated.
        """
        offset = self.offsets.get(tp)
        return (
            offset is not None
            and offset <= end.offsets[tp]
            and not self.was_recreated(tp.topic, end.topic_ids)
        )

    def was_cut(self, end: Position, tp: TopicPartition) -> bool:
        """Whether the log of `tp` was truncated to before this position, as after an unclean election.

        `end` is a later position. The log was truncated if the offset of `tp` is lower in `end`. The result
        is False if the topic's id is unknown or has changed.
        """
        return self.offsets.get(tp, 0) > end.offsets[tp] and self.is_same_topic(tp.topic, end.topic_ids)

    def other_starts(self, end: Position, earliest: Callable[[list[TopicPartition]], Offsets]) -> Offsets:
        """Return the start offset of each partition that cannot start at its offset in this position.

        The result has these partitions of `end`, the position at which the micro-batch ends:

        - A new partition, or a partition of a topic that was created again, starts at its earliest offset.
        - A partition whose log was truncated starts at its offset in `end`. So none of its records are read.

        `earliest` returns the earliest offset of each given partition. It is called once, with all partitions
        of the result.
        """
        others = [tp for tp in end.offsets if not self.continues(end, tp)]
        found = earliest(others)
        return {tp: end.offsets[tp] if self.was_cut(end, tp) else found[tp] for tp in others}
