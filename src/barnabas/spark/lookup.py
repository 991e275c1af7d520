"""Looks up the partitions and offsets that a query needs for its plans.

ListOffsets finds the offset for a time, the log start offset and the latest offset. With the isolation level
read_committed, the latest offset is the last stable offset.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as ClientPartition

from barnabas.base.errors import BarnabasError, ConfigError, ErrorCode
from barnabas.base.types import INTERNAL_TOPICS, ZERO_TOPIC_ID, TopicPartition
from barnabas.client.consumer_groups import commit_offsets
from barnabas.client.errors import AuthenticationError, ClientError
from barnabas.client.lag import lag_of
from barnabas.client.leaders import LeaderRequests, LeaderResponses
from barnabas.client.offset_calls import offsets_request
from barnabas.kafka.protocol.messages.list_offsets import ListOffsetsRequest
from barnabas.spark.clients import consumer_settings, new_consumer
from barnabas.spark.fetch_settings import FetchSettings
from barnabas.spark.kafka_brokers import group_offsets, new_brokers
from barnabas.spark.option_values import EARLIEST, LATEST, invalid_option, topic_pattern
from barnabas.spark.options import Bound, ReadOptions
from barnabas.spark.ranges import Offsets, to_json
from barnabas.spark.topics import Topic, TopicLookup, id_as_text

_logger = logging.getLogger(__name__)

#: The timeout of an answer, retries included, in seconds.
_TIMEOUT_S = 30.0

#: The pause before a retry grows by this much, up to the second.
_RETRY_S = 0.1
_MAX_PAUSE_S = 0.5

#: Number of lookups without a partition after which it counts as deleted. A broker's metadata may be stale.
_ATTEMPTS = 5

#: The number of sampled records for the mean record size, and the seconds to wait for them.
_SAMPLE = 1_000
_SAMPLE_S = 2.0
#: The largest number of sampled partitions: those with the largest lag.
_SAMPLED_PARTITIONS = 16

#: Temporary errors, while a leader changes or starts.
_PASSING = (
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.UNKNOWN_LEADER_EPOCH,
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.OFFSET_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
_NO_SUCH_PARTITION = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class BrokerUnreachableError(BarnabasError):
    """No broker answered; the text names the servers."""


class OffsetLookup:
    """Looks up partitions and offsets for one query, with connections that its owner must close.

    The owner is the Python process in which Spark plans the query. If a result equals the previous one,
    `partitions` and `latest` return the same object. So a query of many partitions detects with one
    comparison that nothing is new.
    """

    def __init__(self, options: ReadOptions) -> None:
        self._options = options
        client = consumer_settings(options.client)
        settings = FetchSettings.parse(client)
        self._read_committed = settings.read_committed
        #: timeout of one request, in seconds
        self._timeout_s = min(settings.timeout_s, _TIMEOUT_S)
        self._topics: Mapping[str, Topic] = {}  # by what was looked up last
        self._partitions: tuple[Mapping[str, Topic], list[TopicPartition]] | None = None
        self._latest: tuple[Mapping[str, Topic], list[TopicPartition], LeaderRequests] | None = None
        self._group = str(client["group.id"])
        # librdkafka's consumer waits for a coordinator that hangs when the group has long had another one
        self._brokers = new_brokers(client, _TIMEOUT_S)
        self._lookup = TopicLookup(self._brokers, self._timeout_s)
        self._consumer: Consumer = new_consumer(client, lambda _: None)  # for samples
        self._committed: Offsets = {}

    def close(self) -> None:
        """Close the connections."""
        self._brokers.close()
        self._consumer.close()

    def partitions(self, *, must_exist: bool = True) -> list[TopicPartition]:
        """Return the present partitions that the options select.

        Args:
            must_exist: whether a missing topic or partition raises ConfigError. If false, the result leaves
                out missing topics and partitions.

        Raises:
            ConfigError: a topic or partition in the options does not exist, and `must_exist` is true.
            BrokerUnreachableError: no broker answers.
            BarnabasError: the brokers do not describe a topic, for example because of missing permissions.
        """
        wanted = self._options
        names = None
        if wanted.pattern is None:
            names = sorted(set(wanted.topics) | {each.topic for each in wanted.partitions})
        topics = self._look_up(names)
        if must_exist and names is not None:
            self._check_existence(_partition_counts(topics))
        if self._partitions is None or self._partitions[0] is not topics:
            self._partitions = topics, self._chosen(_partition_counts(topics))
        return self._partitions[1]

    def _chosen(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        """Return the partitions that the options select. `counts` has the number of partitions by topic."""
        wanted = self._options
        if wanted.partitions:
            return [each for each in wanted.partitions if each.partition < counts.get(each.topic, 0)]
        names: Iterable[str] = set(wanted.topics)
        if wanted.pattern is not None:
            pattern = topic_pattern("subscribePattern", wanted.pattern)
            names = [name for name in counts if pattern.fullmatch(name) and name not in INTERNAL_TOPICS]
        return [
            TopicPartition(name, number) for name in sorted(names) for number in range(counts.get(name, 0))
        ]

    def still_there(self, partitions: Collection[TopicPartition]) -> set[TopicPartition]:
        """Return the partitions in `partitions` that exist now, even if the options do not select them."""
        counts = _partition_counts(self._look_up({tp.topic for tp in partitions}))
        return {tp for tp in partitions if tp.partition < counts.get(tp.topic, 0)}

    def _look_up(self, names: Collection[str] | None) -> Mapping[str, Topic]:
        """Look up topics by name, or all topics for None. Retry while errors are temporary, up to 30 seconds.

        Raises BrokerUnreachableError, or BarnabasError if a topic has another error.
        """
        give_up = time.monotonic() + _TIMEOUT_S
        for pause_s in _pauses():
            if pause_s:  # a sleep of 0 gives the processor away
                time.sleep(pause_s)
            is_last = time.monotonic() >= give_up
            try:
                topics = self._lookup.topics(names)
            except ClientError as error:
                if is_last or isinstance(error, AuthenticationError):
                    raise self._unreachable(error) from None
                continue
            refused = {name: topics[name].error for name in names or () if name in topics}
            for name, error_code in refused.items():
                is_final = is_last or error_code not in _PASSING
                if is_final and error_code not in (ErrorCode.NONE, *_NO_SUCH_PARTITION):
                    raise BarnabasError(f"cannot look up topic {name}: {error_code.doc}")
            if not any(error_code in _PASSING for error_code in refused.values()):
                break
        self._topics = topics
        return topics

    def _check_existence(self, counts: Mapping[str, int]) -> None:
        wanted = self._options
        for name in wanted.topics:
            if name not in counts:
                hint = f"there is no topic {name}; create it or correct the name"
                raise invalid_option("subscribe", ",".join(wanted.topics), hint)
        for each in wanted.partitions:
            if each.partition >= counts.get(each.topic, 0):
                there = f"has {counts[each.topic]} partitions" if each.topic in counts else "does not exist"
                raise invalid_option(
                    "assign", f"{each.topic}:{each.partition}", f"topic {each.topic} {there}"
                )

    def topic_ids(self, topics: Iterable[str]) -> dict[str, str]:
        """Return the id of each topic (KIP-516) from the last lookup.

        Topics without an id, and deleted topics, are left out.
        """
        known = self._topics
        return {
            name: id_as_text(known[name].topic_id)
            for name in topics
            if name in known and known[name].error is ErrorCode.NONE and known[name].topic_id != ZERO_TOPIC_ID
        }

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return the log start offset of each partition.

        Raises BarnabasError if a leader rejects the request, or none answers within 30 seconds.
        """
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """Return for each partition the offset after the last record that a reader may see.

        That is the high watermark, or the last stable offset for read_committed. If `partitions` is the list
        that the method `partitions` returned, and no offset has changed, the result is the same object as the
        previous call's. This blocks. Raises BarnabasError if a leader rejects the request, or does not answer
        within 30 seconds.
        """
        if self._partitions is None or partitions is not self._partitions[1]:
            return self._list_offsets(dict.fromkeys(partitions, LATEST))
        topics, chosen = self._partitions
        if self._latest is None or self._latest[0] is not topics or self._latest[1] is not chosen:
            self._latest = topics, chosen, self._question(dict.fromkeys(chosen, LATEST))
        question = self._latest[2]
        answers = self._ask(question)
        if answers.error_codes or answers.unanswered:
            return self._ask_again(dict.fromkeys(chosen, LATEST), answers)
        return answers.offsets

    def resolve(self, bound: Bound, partitions: list[TopicPartition]) -> Offsets:
        """Return the offset of each partition for `bound`, the start or the end of a read.

        `partitions` are all partitions of the query. The result has no `EARLIEST`, `LATEST` or timestamps:
        this method asks the brokers for the offsets. It blocks.

        Raises:
            ConfigError: `bound` names other partitions than `partitions`; or a partition has no record at or
                after the time in `bound`, and startingOffsetsByTimestampStrategy is not latest.
            BarnabasError: a broker rejects the request, or none answers.
        """
        wanted = bound.by_partition
        if wanted is None:
            wanted = dict.fromkeys(partitions, bound.everywhere)
        elif set(wanted) != set(partitions):
            raise _mismatch(bound, wanted, partitions)
        if bound.is_timestamp:
            return self._at_times(bound, wanted)
        if bound.is_committed:
            wanted = {**wanted, **self._committed_offsets(partitions)}
        ends = self._list_offsets({tp: offset for tp, offset in wanted.items() if offset < 0})
        return {**wanted, **ends}

    def at_time(self, moment: int, partitions: list[TopicPartition]) -> Offsets:
        """Return each partition's first offset at `moment` or later; if there is none, the latest offset.

        `moment` is in milliseconds since 1970.
        """
        found = self._list_offsets(dict.fromkeys(partitions, moment))
        return found | self.latest(tp for tp, offset in found.items() if offset < 0)

    def _committed_offsets(self, partitions: list[TopicPartition]) -> Offsets:
        found = group_offsets(self._brokers, self._group, only=partitions, stable=self._read_committed)
        return {tp: each.offset for tp, each in found.items()}

    def sample(self, start: Offsets, end: Offsets) -> dict[TopicPartition, float]:
        """Estimate the mean record size, in bytes, of each partition with records from `start` to `end`.

        The size is measured for the partitions with the largest lag, if possible one of each topic. Other
        partitions get the mean of their topic, weighted by lag. Partitions of a topic without a measured
        partition are left out.
        """
        behind = {tp: lag for tp, lag in lag_of(end, start).items() if lag}
        chosen = _furthest_behind(behind, _SAMPLED_PARTITIONS)
        measured = self._measure([ClientPartition(tp.topic, tp.partition, start[tp]) for tp in chosen])
        sums: dict[str, tuple[float, int]] = {}
        for tp, size in measured.items():
            total, weight = sums.get(tp.topic, (0.0, 0))
            sums[tp.topic] = total + size * behind[tp], weight + behind[tp]
        usual = {topic: total / weight for topic, (total, weight) in sums.items()}
        return {tp: usual[tp.topic] for tp in behind if tp.topic in usual} | measured

    def _measure(self, lagging: list[ClientPartition]) -> dict[TopicPartition, float]:
        """Read some records of each partition in `lagging`, for at most 2 seconds.

        Each element of `lagging` has the offset at which to begin. Return the mean size of the records by
        partition, in bytes. Partitions whose records did not arrive in time are left out.
        """
        if not lagging:
            return {}
        sizes: dict[TopicPartition, list[int]] = {}
        self._consumer.assign(lagging)
        try:
            still_to_hear = {(each.topic, each.partition) for each in lagging}
            give_up = time.monotonic() + _SAMPLE_S
            while still_to_hear and time.monotonic() < give_up:
                for message in self._consumer.consume(_SAMPLE, timeout=_RETRY_S):
                    tp = TopicPartition(message.topic(), message.partition())
                    still_to_hear.discard(tp)
                    if message.error() is None:
                        sizes.setdefault(tp, []).append(_size(message))
        finally:
            self._consumer.unassign()
        return {tp: sum(each) / len(each) for tp, each in sizes.items()}

    def _at_times(self, bound: Bound, times: Offsets) -> Offsets:
        found = self._list_offsets(times)
        too_late = [tp for tp, offset in found.items() if offset < 0]
        if too_late and not bound.latest_when_too_late:
            raise invalid_option(
                bound.option,
                times[too_late[0]],
                f"partition {too_late[0]} has no record of that time or later; "
                "choose an earlier time or set startingOffsetsByTimestampStrategy=latest",
            )
        return found | self.latest(too_late)

    def _list_offsets(self, wanted: Offsets) -> Offsets:
        """Return offsets by ListOffsets, from the leaders.

        A value of `wanted` is a time in milliseconds since 1970, `EARLIEST` or `LATEST`. For a time after the
        last record, the offset in the result is -1. Raises BarnabasError if a leader rejects the request, or
        none answers within 30 seconds.
        """
        if not wanted:
            return {}
        answers = self._ask(self._question(wanted))
        return (
            self._ask_again(wanted, answers) if answers.error_codes or answers.unanswered else answers.offsets
        )

    def _ask_again(self, wanted: Offsets, answers: LeaderResponses) -> Offsets:
        """Repeat ListOffsets for the partitions of `wanted` that have no offset in `answers`.

        Return the offsets of all partitions of `wanted`. Raises BarnabasError if a leader rejects the
        request, or none answers within 30 seconds.
        """
        found = dict(answers.offsets)
        give_up = time.monotonic() + _TIMEOUT_S
        for attempt, pause_s in enumerate(_pauses(), 1):
            self._check(answers, attempt, is_last=time.monotonic() >= give_up)
            missing = {tp: which for tp, which in wanted.items() if tp not in found}
            if not missing:
                break
            time.sleep(pause_s)
            known = self._topics
            self._topics = {**known, **self._look_up({tp.topic for tp in missing})}
            answers = self._ask(self._question(missing))
            found |= answers.offsets
        return found

    def _check(self, answers: LeaderResponses, attempt: int, *, is_last: bool) -> None:
        """Raise BarnabasError for errors in `answers` that a further attempt cannot mend.

        `attempt` is the number of this attempt, from 1. Before attempt `_ATTEMPTS`, a missing partition is
        not an error, because a new partition may appear. With `is_last`, any error in `answers` raises.
        """
        refused = {}
        for tp, error in answers.error_codes.items():
            waits = attempt < _ATTEMPTS if error in _NO_SUCH_PARTITION else error in _PASSING
            if is_last or not waits:
                refused[tp] = error
        if refused:
            reasons = "; ".join(f"{tp}: {error.doc}" for tp, error in refused.items())
            raise BarnabasError(f"cannot look up offsets of {reasons}")
        if is_last:
            for failure in answers.unanswered.values():
                raise self._unreachable(failure)

    def _question(self, wanted: Offsets) -> LeaderRequests:
        unknown = {tp.topic for tp in wanted if tp.topic not in self._topics}
        if unknown:
            known = self._topics
            self._topics = {**known, **self._look_up(unknown)}
        leaders = {
            tp: topic.leaders[tp.partition]
            for tp in wanted
            if (topic := self._topics.get(tp.topic)) is not None and tp.partition in topic.leaders
        }

        def request_of(partitions: Sequence[TopicPartition]) -> ListOffsetsRequest:
            return offsets_request({tp: wanted[tp] for tp in partitions}, committed=self._read_committed)

        return LeaderRequests(self._brokers, wanted, leaders, request_of)

    def _ask(self, question: LeaderRequests) -> LeaderResponses:
        try:
            return question.ask(deadline=time.monotonic() + self._timeout_s)
        except AuthenticationError as error:
            raise self._unreachable(error) from None

    def commit(self, processed: Offsets) -> None:
        """Commit changed offsets to the query's group, so that tools can show the lag.

        `processed` has, for each partition, the offset of the first record that the query has not processed.
        A failure is only logged. The group has no members. The group's offsets of other partitions do not
        change.
        """
        news = {tp: offset for tp, offset in processed.items() if self._committed.get(tp) != offset}
        if not news:
            return
        group = self._group
        try:
            self._brokers.ask_coordinator(group, lambda broker, _: commit_offsets(broker, group, news))
        except BarnabasError as error:
            _logger.warning("cannot commit to group %s: %s", group, error)
        else:
            self._committed.update(news)

    def _unreachable(self, error: ClientError) -> BrokerUnreachableError:
        servers = self._options.client["bootstrap.servers"]
        if isinstance(error, AuthenticationError):
            return BrokerUnreachableError(f"option kafka.bootstrap.servers={servers}: {error}")
        return BrokerUnreachableError(
            f"option kafka.bootstrap.servers={servers}: no answer within {_TIMEOUT_S:.0f} s "
            f"({error}); is the broker running there?"
        )


def _pauses() -> Iterator[float]:
    """Yield, without end, the seconds to wait before each attempt.

    The first two attempts do not wait: the first may fail only because the broker closed an idle connection.
    """
    return (min(_RETRY_S * max(0, attempt - 1), _MAX_PAUSE_S) for attempt in itertools.count())


def _furthest_behind(behind: Offsets, max_partitions: int) -> list[TopicPartition]:
    """Return the `max_partitions` partitions with the largest lag. `behind` has the lag of each partition.

    Each topic's partition with the largest lag comes first, then each topic's second one, and so on.
    """
    by_lag = sorted(behind, key=lambda tp: -behind[tp])
    rank: Counter[str] = Counter()
    ranked = []
    for tp in by_lag:
        ranked.append((rank[tp.topic], tp))
        rank[tp.topic] += 1
    ranked.sort(key=lambda each: each[0])  # stable: within a rank, the furthest behind come first
    return [tp for _, tp in ranked[:max_partitions]]


def _partition_counts(topics: Mapping[str, Topic]) -> dict[str, int]:
    """Return the number of partitions of each existing topic."""
    return {name: len(topic.leaders) for name, topic in topics.items() if topic.error is ErrorCode.NONE}


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
        hint = f"name every partition that is read; missing: {', '.join(map(str, missing))}"
    else:
        hint = f"remove what is not read: {', '.join(map(str, strange))}"
    return invalid_option(bound.option, to_json(wanted), hint)
