"""Requests to the leaders of partitions: one request for each leader, sent at the same time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeAlias

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.base.types import NO_BROKER, BrokerId, TopicPartition
from barnabas.client.brokers import Brokers
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.repeated import Repeated
from barnabas.kafka.protocol.schema import Request

#: makes the request to one leader from its partitions
RequestOf: TypeAlias = Callable[[Sequence[TopicPartition]], Request]


@dataclass
class LeaderResponses:
    """The answers for partitions, and the reason for each partition without an answer.

    Attributes:
        results: for each answered partition, its part of the leader's response.
        error_codes: the error code of each partition that its leader rejected, that has no leader, or that
            does not exist.
        unanswered: for each partition whose leader did not answer, the error.
    """

    results: dict[TopicPartition, Any] = field(default_factory=dict)
    error_codes: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    unanswered: dict[TopicPartition, ClientError] = field(default_factory=dict)

    @cached_property
    def offsets(self) -> dict[TopicPartition, int]:
        """Return the offsets in responses to ListOffsets."""
        return {partition: each.offset for partition, each in self.results.items()}

    def errors(self) -> Iterator[BarnabasError]:
        """Yield an error for each partition without an answer."""
        yield from self.unanswered.values()
        for partition, code in self.error_codes.items():
            if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                yield KafkaError(code, f"there is no partition {partition}")
            else:
                yield KafkaError(code, f"{partition}: {code.doc}")


class LeaderRequests:
    """A request about partitions that is sent to their leaders repeatedly.

    If all responses equal the previous ones, `ask` decodes nothing and returns the same object.
    """

    def __init__(
        self,
        brokers: Brokers,
        partitions: Iterable[TopicPartition],
        leaders: Mapping[TopicPartition, BrokerId],
        request_of: RequestOf,
    ) -> None:
        """Prepare one request for each leader.

        Args:
            partitions: the partitions that the requests are about.
            leaders: leader of each existing partition; `NO_BROKER` for a partition without a leader.
            request_of: makes the request to one leader from its partitions.
        """
        self._brokers = brokers
        self._refused: dict[TopicPartition, ErrorCode] = {}
        self._by_leader: dict[BrokerId, list[TopicPartition]] = {}
        for partition in partitions:
            leader = leaders.get(partition)
            if leader is None:
                self._refused[partition] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            elif leader == NO_BROKER:
                self._refused[partition] = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                self._by_leader.setdefault(leader, []).append(partition)
        self._requests = {leader: Repeated(request_of(own)) for leader, own in self._by_leader.items()}
        #: the responses that `_answers` is made of
        self._responses: list[Any] | None = None
        self._answers = LeaderResponses()

    def ask(self, *, response_timeout: float | None = None, deadline: float | None = None) -> LeaderResponses:
        """Send the requests and return the answers.

        Args:
            response_timeout: largest number of seconds for each answer; None for all the time that is left.
            deadline: monotonic seconds; None for the timeout of the `Brokers`.

        Raises:
            AuthenticationError: the login failed: a leader rejects the client, or the client rejects a
                leader.
        """
        found, failures = self._brokers.ask_each(
            self._requests, response_timeout=response_timeout, deadline=deadline
        )
        for error in failures.values():
            if isinstance(error, AuthenticationError):
                raise error
        responses = list(found.values())
        is_known = self._responses is not None and all(map(operator.is_, responses, self._responses))
        if failures or not is_known:
            self._answers = self._put_together(found, failures)
            self._responses = None if failures else responses
        return self._answers

    def _put_together(
        self, found: Mapping[BrokerId, Any], failures: Mapping[BrokerId, ClientError]
    ) -> LeaderResponses:
        answers = LeaderResponses(error_codes=dict(self._refused))
        for leader, error in failures.items():
            answers.unanswered |= dict.fromkeys(self._by_leader[leader], error)
        for response in found.values():
            for partition, each in by_partition(response):
                if each.error_code:
                    answers.error_codes[partition] = error_code(each.error_code)
                else:
                    answers.results[partition] = each
        return answers


def ask_leaders(
    brokers: Brokers,
    partitions: Iterable[TopicPartition],
    request_of: RequestOf,
    *,
    response_timeout: float | None = None,
    skip_failed: bool = False,
) -> dict[TopicPartition, Any]:
    """Return, by partition, what the partition's leader has answered about it.

    If leaders change, the requests are repeated for the partitions without an answer.

    Args:
        request_of: makes the request to one leader from its partitions.
        response_timeout: largest number of seconds for each answer; None for all the time that is left.
        skip_failed: return after one attempt. The result lacks the partitions that do not exist or have no
            leader, and those whose leader rejects them or does not answer.

    Raises:
        KafkaError: a partition does not exist or has no leader, or its leader rejects the request for it.
        ClientError: a leader does not answer.
    """
    wanted = list(partitions)
    results: dict[TopicPartition, Any] = {}

    def attempt(deadline: float) -> None:
        rest = [partition for partition in wanted if partition not in results]
        metadata = brokers.metadata(sorted({partition.topic for partition in rest}), deadline)
        question = LeaderRequests(brokers, rest, leaders_of(metadata.topics), request_of)
        answers = question.ask(response_timeout=response_timeout, deadline=deadline)
        results.update(answers.results)
        if not skip_failed:
            for error in answers.errors():
                raise error

    if wanted:
        brokers.retry(attempt)
    return {partition: results[partition] for partition in wanted if partition in results}


def leaders_of(topics: Iterable[Any]) -> dict[TopicPartition, BrokerId]:
    """Return the leader of each partition of `topics`, the topics in a MetadataResponse.

    A partition without a leader has `NO_BROKER`.
    """
    return {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in topics
        for partition in topic.partitions
    }


def live_leaders(topics: Iterable[Any]) -> dict[TopicPartition, BrokerId]:
    """Return the leader of each partition of `topics`, the topics in a MetadataResponse.

    Partitions without a leader are left out.
    """
    return {partition: leader for partition, leader in leaders_of(topics).items() if leader != NO_BROKER}


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return the partition numbers of each topic."""
    topics: dict[str, list[int]] = {}
    for topic, number in partitions:
        topics.setdefault(topic, []).append(number)
    return topics


def by_partition(response: Any) -> Iterator[tuple[TopicPartition, Any]]:
    """Yield each partition in a leader's response, with its part of the response.

    In a WriteTxnMarkers response, each marker has topics; a partition can occur in several markers.
    """
    for part in getattr(response, "markers", [response]):
        for topic in part.topics:
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition_index), each
