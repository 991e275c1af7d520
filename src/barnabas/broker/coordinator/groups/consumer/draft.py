"""A pending change of a consumer group."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.broker.coordinator.groups.consumer.group import ConsumerGroup
from barnabas.broker.coordinator.groups.consumer.member import ConsumerMember
from barnabas.broker.coordinator.groups.modern.draft import ModernGroupDraft
from barnabas.kafka.protocol.records import consumer_group as stored


class GroupDraft(ModernGroupDraft[ConsumerGroup, ConsumerMember]):
    """A pending change of a consumer group, and the records that store it."""

    def put_regex(self, regex: str, topics: Iterable[str], now_ms: int) -> None:
        value = stored.ConsumerGroupRegularExpressionValue(topics=sorted(topics), timestamp=now_ms)
        self._write(self._regex_key(regex), value)

    def remove_regex(self, regex: str) -> None:
        self._write(self._regex_key(regex), None)

    def _regex_key(self, regex: str) -> stored.ConsumerGroupRegularExpressionKey:
        return stored.ConsumerGroupRegularExpressionKey(group_id=self.group_id, regular_expression=regex)
