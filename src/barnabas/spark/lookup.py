"""What a query asks of the brokers when it plans: which partitions there are and which offsets they hold.

Times and the two ends of a log are asked with the same request (ListOffsets), by the client's isolation
level: for a reader of committed records only, the latest offset is the last stable one.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Iterable, Mapping

from confluent_kafka import Consumer, KafkaException, Message, TopicCollection
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as ClientPartition
from confluent_kafka.admin import AdminClient

from barnabas.errors import BarnabasError, ConfigError
from barnabas.spark.clients import consumer_settings, new_admin, new_consumer
from barnabas.spark.option_values import EARLIEST, LATEST, refuse, topic_pattern
from barnabas.spark.options import Bound, ReadOptions
from barnabas.spark.ranges import Offsets, to_json
from barnabas.types import INTERNAL_TOPICS, Offset, TopicPartition

_logger = logging.getLogger(__name__)

#: How long one question may take, in seconds.
_TIMEOUT_S = 30.0

#: Up to this many topics are asked for one by one, rather than all that the cluster has.
_ASKED_BY_NAME = 8

#: How often offsets are asked for while the answer is one that passes, and how much longer between each.
_ATTEMPTS = 5
_RETRY_S = 0.1

#: How many records are taken to judge the size of the next ones, and how long it is waited for them.
_SAMPLE = 1_000
_SAMPLE_S = 2.0

_PASSING = (
    ClientError.LEADER_NOT_AVAILABLE,
    ClientError.NOT_LEADER_FOR_PARTITION,
    ClientError.UNKNOWN_LEADER_EPOCH,
    ClientError.FENCED_LEADER_EPOCH,
    ClientError.OFFSET_NOT_AVAILABLE,
    ClientError.UNKNOWN_TOPIC_OR_PART,
)

#: The id of a topic on brokers that give none.
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"

_NO_SUCH_TOPIC = (ClientError.UNKNOWN_TOPIC_OR_PART, ClientError._UNKNOWN_TOPIC)
_NO_SUCH_PARTITION = (ClientError._UNKNOWN_PARTITION, ClientError._UNKNOWN_TOPIC)


class BrokerUnreachableError(BarnabasError):
    """No broker gave an answer; the text names the servers that were asked."""


class OffsetLookup:
    """Asks for one query; owned by the planner's process, which closes it."""

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        self._last_error = ""
        self._consumer: Consumer = new_consumer(consumer_settings(options.client), self._on_error)
        self._committed: Offsets = {}
        self._admin: AdminClient | None = None

    def close(self) -> None:
        """Leave the brokers; nothing can be asked after."""
        self._consumer.close()

    def partitions(self, *, must_exist: bool = True) -> list[TopicPartition]:
        """The partitions the query reads, as they are now; those gone are left out unless `must_exist`.

        Raises:
            ConfigError: a topic or partition that the options name does not exist.
            BrokerUnreachableError: no broker answers.
        """
        wanted = self._options
        if wanted.pattern is not None:
            pattern = topic_pattern("subscribePattern", wanted.pattern)
            counts = self._partition_counts(None)
            names = [name for name in counts if pattern.fullmatch(name) and name not in INTERNAL_TOPICS]
        else:
            names = sorted(set(wanted.topics) | {each.topic for each in wanted.partitions})
            counts = self._partition_counts(names)
            if must_exist:
                self._check_existence(counts)
        if wanted.partitions:
            return [each for each in wanted.partitions if each.partition < counts.get(each.topic, 0)]
        return [
            TopicPartition(name, number) for name in sorted(names) for number in range(counts.get(name, 0))
        ]

    def still_there(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Those of `partitions` that exist now, whether or not the options choose them."""
        counts = self._partition_counts(sorted({tp.topic for tp in partitions}))
        return {tp for tp in partitions if tp.partition < counts.get(tp.topic, 0)}

    def _partition_counts(self, names: list[str] | None) -> dict[str, int]:
        """How many partitions each topic that exists has, of all topics or of `names`."""
        try:
            if names is None or len(names) > _ASKED_BY_NAME:
                topics = self._consumer.list_topics(timeout=_TIMEOUT_S).topics
            else:
                topics = {name: self._consumer.list_topics(name, _TIMEOUT_S).topics[name] for name in names}
        except KafkaException as error:
            raise self._unreachable(error) from None
        for name in names or ():
            refusal = topics[name].error if name in topics else None
            if refusal is not None and refusal.code() not in _NO_SUCH_TOPIC:
                raise BarnabasError(f"cannot look up topic {name}: {refusal.str()}")
        return {name: len(topic.partitions) for name, topic in topics.items() if topic.error is None}

    def _check_existence(self, counts: Mapping[str, int]) -> None:
        wanted = self._options
        for name in wanted.topics:
            if name not in counts:
                cure = f"there is no topic {name}; create it or correct the name"
                raise refuse("subscribe", ",".join(wanted.topics), cure)
        for each in wanted.partitions:
            if each.partition >= counts.get(each.topic, 0):
                there = f"has {counts[each.topic]} partitions" if each.topic in counts else "does not exist"
                raise refuse("assign", f"{each.topic}:{each.partition}", f"topic {each.topic} {there}")

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """The id that each topic was made with (KIP-516); those that have none, or are gone, are left out."""
        names = list(topics)
        if not names:
            return {}
        if self._admin is None:
            # settings for consumers only are worth no warning here
            self._admin = new_admin({"log_level": "3", **self._options.client})
        ids = {}
        answers = self._admin.describe_topics(TopicCollection(names), request_timeout=_TIMEOUT_S)
        for name, answer in answers.items():
            try:
                ids[name] = str(answer.result().topic_id)
            except KafkaException as error:
                _logger.debug("cannot describe topic %s: %s", name, error.args[0].str())
        return {name: topic_id for name, topic_id in ids.items() if topic_id != _NO_ID}

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
        if bound.is_committed:
            wanted |= self._committed_offsets(partitions)
        ends = self._list_offsets({tp: offset for tp, offset in wanted.items() if offset < 0})
        return {**wanted, **ends}

    def at_time(self, moment: int, partitions: list[TopicPartition]) -> Offsets:
        """The first record of each at `moment` (milliseconds since 1970) or later; else its end."""
        found = self._list_offsets(dict.fromkeys(partitions, moment))
        return found | self.latest(tp for tp, offset in found.items() if offset < 0)

    def _committed_offsets(self, partitions: list[TopicPartition]) -> Offsets:
        asked = [ClientPartition(tp.topic, tp.partition) for tp in partitions]
        failure = f"cannot read the offsets of group {self._options.client['group.id']}"
        try:
            answers = self._consumer.committed(asked, timeout=_TIMEOUT_S)
        except KafkaException as error:
            raise BarnabasError(f"{failure}: {error.args[0].str()}") from None
        for each in answers:
            if each.error is not None:
                raise BarnabasError(f"{failure}: {each.topic}-{each.partition}: {each.error.str()}")
        return {
            TopicPartition(each.topic, each.partition): each.offset for each in answers if each.offset >= 0
        }

    def sample(self, start: Offsets, end: Offsets) -> dict[TopicPartition, float]:
        """How many bytes a record has on average, by the first of each that lies between; some may lack."""
        lagging = [ClientPartition(tp.topic, tp.partition, start[tp]) for tp in end if start[tp] < end[tp]]
        if not lagging:
            return {}
        sizes: dict[TopicPartition, list[int]] = {}
        self._consumer.assign(lagging)
        try:
            still_to_hear = {(each.topic, each.partition) for each in lagging}
            give_up = time.monotonic() + _SAMPLE_S
            while still_to_hear and time.monotonic() < give_up:
                for message in self._consumer.consume(_SAMPLE, timeout=_RETRY_S):
                    place = TopicPartition(message.topic(), message.partition())
                    still_to_hear.discard(place)
                    if message.error() is None:
                        sizes.setdefault(place, []).append(_size(message))
        finally:
            self._consumer.unassign()
        return {tp: sum(each) / len(each) for tp, each in sizes.items()}

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
        """One ListOffsets for all; a time that no record has reached gives `LATEST`.

        A partition that has no leader for a moment, or whose leader has just changed, is asked again.
        """
        found: Offsets = {}
        missing = dict(wanted)
        for attempt in range(_ATTEMPTS):
            if not missing:
                break
            time.sleep(_RETRY_S * attempt)
            refused = {}
            for tp, offset, error in self._ask_offsets(missing):
                if error is None:
                    found[tp] = offset
                elif attempt == _ATTEMPTS - 1 or error.code() not in _PASSING:
                    refused[tp] = error
            if refused:
                reasons = "; ".join(f"{tp}: {error.str()}" for tp, error in refused.items())
                raise BarnabasError(f"cannot look up offsets of {reasons}")
            missing = {tp: offset for tp, offset in wanted.items() if tp not in found}
        return found

    def _ask_offsets(self, wanted: Offsets) -> list[tuple[TopicPartition, Offset, ClientError | None]]:
        """What is answered of each partition: an offset, or an error.

        librdkafka raises what a leader refuses, and does not say of which partition: it is all of them then.
        """
        asked = [ClientPartition(tp.topic, tp.partition, offset) for tp, offset in wanted.items()]
        try:
            answers = self._consumer.offsets_for_times(asked, timeout=_TIMEOUT_S)
        except KafkaException as error:
            code = error.args[0].code()
            if code < ClientError.UNKNOWN and code not in _NO_SUCH_PARTITION:
                raise self._unreachable(error) from None
            return [(tp, -1, error.args[0]) for tp in wanted]
        return [(TopicPartition(each.topic, each.partition), each.offset, each.error) for each in answers]

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

    def _on_error(self, error: ClientError) -> None:
        """What a connection failed of comes aside from the answers; that all have failed says nothing new."""
        if error.code() != ClientError._ALL_BROKERS_DOWN:
            self._last_error = error.str()

    def _unreachable(self, error: KafkaException) -> BrokerUnreachableError:
        self._consumer.poll(0)  # so that it says what happened
        servers = self._options.client["bootstrap.servers"]
        return BrokerUnreachableError(
            f"option kafka.bootstrap.servers={servers}: no answer within {_TIMEOUT_S:.0f} s "
            f"({self._last_error or error.args[0].str()}); is the broker running there?"
        )


def _size(message: Message) -> int:
    headers = message.headers() or ()
    return sum(
        len(each or b"")
        for each in (message.key(), message.value(), *(part for pair in headers for part in pair))
    )


def _mismatch(bound: Bound, wanted: Offsets, partitions: list[TopicPartition]) -> ConfigError:
    missing = sorted(set(partitions) - set(wanted))
    strange = sorted(set(wanted) - set(partitions))
    if missing:
        cure = f"name every partition that is read; missing: {', '.join(map(str, missing))}"
    else:
        cure = f"remove what is not read: {', '.join(map(str, strange))}"
    return refuse(bound.option, to_json(wanted), cure)
