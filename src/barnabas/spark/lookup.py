"""What a query asks of the brokers when it plans: which partitions there are and which offsets they hold.

Times and the two ends of a log are asked with the same request (ListOffsets), by the client's isolation
level: for a reader of committed records only, the latest offset is the last stable one.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Mapping

from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.errors import BarnabasError, ConfigError
from barnabas.spark.clients import consumer_settings, new_consumer
from barnabas.spark.option_values import EARLIEST, LATEST, refuse
from barnabas.spark.options import Bound, ReadOptions
from barnabas.spark.ranges import Offsets, to_json
from barnabas.types import INTERNAL_TOPICS, TopicPartition

_logger = logging.getLogger(__name__)

#: How long one question may take, in seconds.
_TIMEOUT_S = 30.0


class BrokerUnreachableError(BarnabasError):
    """No broker gave an answer; the text names the servers that were asked."""


class OffsetLookup:
    """Asks for one query; owned by the planner's process, which closes it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._consumer: Consumer = new_consumer(consumer_settings(options.client))
        self._committed: Offsets = {}

    def close(self) -> None:
        """Leave the brokers; nothing can be asked after."""
        self._consumer.close()

    def partitions(self) -> list[TopicPartition]:
        """The partitions the query reads, as they are now.

        Raises:
            ConfigError: a topic or partition that the options name does not exist.
            BrokerUnreachableError: no broker answers.
        """
        try:
            topics = self._consumer.list_topics(timeout=_TIMEOUT_S).topics
        except KafkaException as error:
            raise self._unreachable(error) from None
        counts = {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}
        if self._options.partitions:
            return self._assigned(counts)
        if self._options.pattern is not None:
            pattern = re.compile(self._options.pattern)
            names = [name for name in counts if pattern.fullmatch(name) and name not in INTERNAL_TOPICS]
        else:
            names = list(self._options.topics)
            for name in names:
                if name not in counts:
                    raise refuse(
                        "subscribe",
                        ",".join(names),
                        f"there is no topic {name}; create it or correct the name",
                    )
        return [TopicPartition(name, number) for name in sorted(names) for number in range(counts[name])]

    def _assigned(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        for each in self._options.partitions:
            if each.partition >= counts.get(each.topic, 0):
                there = f"has {counts[each.topic]} partitions" if each.topic in counts else "does not exist"
                raise refuse("assign", f"{each.topic}:{each.partition}", f"topic {each.topic} {there}")
        return list(self._options.partitions)

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The log start offset of each."""
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """The offset after the last record of each that a reader may see."""
        return self._list_offsets(dict.fromkeys(partitions, LATEST))

    def resolve(self, bound: Bound, partitions: list[TopicPartition]) -> Offsets:
        """Offsets for where the options say to start or to stop.

        Raises:
            ConfigError: the option names other partitions than are read, or a time no record has reached.
        """
        wanted = bound.by_partition
        if wanted is None:
            wanted = dict.fromkeys(partitions, bound.everywhere)
        elif set(wanted) != set(partitions):
            raise _mismatch(bound, wanted, partitions)
        if bound.is_timestamp:
            return self._at_times(bound, wanted)
        ends = self._list_offsets({tp: offset for tp, offset in wanted.items() if offset < 0})
        return {**wanted, **ends}

    def _at_times(self, bound: Bound, times: Offsets) -> Offsets:
        found = self._list_offsets(times)
        too_late = [tp for tp, offset in found.items() if offset < 0]
        if too_late and not bound.latest_when_too_late:
            raise refuse(
                bound.option,
                times[too_late[0]],
                f"partition {too_late[0]} has no record of that time or later; "
                "choose an earlier time or set startingOffsetsByTimestampStrategy=latest",
            )
        return found | self.latest(too_late)

    def _list_offsets(self, wanted: Offsets) -> Offsets:
        """One ListOffsets for all; a time that no record has reached gives `LATEST`."""
        if not wanted:
            return {}
        asked = [ClientPartition(tp.topic, tp.partition, offset) for tp, offset in wanted.items()]
        try:
            answers = self._consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise self._unreachable(error) from None
        for answer in answers:
            if answer.error is not None:
                raise BarnabasError(
                    f"cannot look up offsets of {answer.topic}-{answer.partition}: {answer.error.str()}"
                )
        return {TopicPartition(answer.topic, answer.partition): answer.offset for answer in answers}

    def commit(self, processed: Offsets) -> None:
        """Commit to the query's group, so that its lag can be watched; a failure is only logged.

        Without members the group is a plain store of offsets; anything else in it keeps its own.
        """
        news = {tp: offset for tp, offset in processed.items() if self._committed.get(tp) != offset}
        if not news:
            return
        offsets = [ClientPartition(tp.topic, tp.partition, offset) for tp, offset in news.items()]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            group = self._options.client["group.id"]
            _logger.warning("cannot commit to group %s: %s", group, error.args[0].str())
        else:
            self._committed.update(news)

    def _unreachable(self, error: KafkaException) -> BrokerUnreachableError:
        servers = self._options.client["bootstrap.servers"]
        return BrokerUnreachableError(
            f"option kafka.bootstrap.servers={servers}: no answer within {_TIMEOUT_S:.0f} s "
            f"({error.args[0].str()}); is the broker running there?"
        )


def _mismatch(bound: Bound, wanted: Offsets, partitions: list[TopicPartition]) -> ConfigError:
    missing = sorted(set(partitions) - set(wanted))
    strange = sorted(set(wanted) - set(partitions))
    if missing:
        cure = f"name every partition that is read; missing: {', '.join(map(str, missing))}"
    else:
        cure = f"remove what is not read: {', '.join(map(str, strange))}"
    return refuse(bound.option, to_json(wanted), cure)
