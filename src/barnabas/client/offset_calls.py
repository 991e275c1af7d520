"""Requests to the leaders of partitions: offsets, and deletion of records."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from operator import methodcaller
from typing import Any

from barnabas.base.errors import BarnabasError, ErrorCode, KafkaError
from barnabas.base.types import TopicPartition
from barnabas.client.addresses import Address
from barnabas.client.brokers import PATIENCE, Brokers
from barnabas.client.errors import ClientError, error_code
from barnabas.client.offset_requests import by_partition, offsets_request
from barnabas.kafka.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.kafka.protocol.messages.metadata import MetadataResponse
from barnabas.kafka.protocol.schema import Request


def list_offsets(
    brokers: Brokers, times: Mapping[TopicPartition, int], *, skip_failed: bool
) -> dict[TopicPartition, int]:
    """Return the offset of the first record at a time or later, for each partition; -1 if there is none.

    Args:
        times: milliseconds since 1970, or the protocol's -2 (earliest) and -1 (latest).
        skip_failed: leave partitions out whose leader does not tell, instead of asking it again.
    """

    def request(times: Mapping[TopicPartition, int]) -> Request:
        return offsets_request(times, timeout_ms=round(1000 * brokers.timeout))

    answers = _ask_leaders(brokers, times, request, PATIENCE, skip_failed=skip_failed)
    return {partition: answer.offset for partition, answer in answers.items()}


def delete_records(brokers: Brokers, before: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Delete the records below these offsets (-1: all); return the new log start offsets."""

    def request(before: Mapping[TopicPartition, int]) -> DeleteRecordsRequest:
        topics: dict[str, DeleteRecordsTopic] = {}
        for (name, number), offset in before.items():
            topic = topics.setdefault(name, DeleteRecordsTopic(name=name))
            topic.partitions.append(DeleteRecordsPartition(partition_index=number, offset=offset))
        return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=round(1000 * brokers.timeout))

    answers = _ask_leaders(brokers, before, request, None, skip_failed=False)  # followers delete them, too
    return {partition: answer.low_watermark for partition, answer in answers.items()}


def _ask_leaders(
    brokers: Brokers,
    asked: Mapping[TopicPartition, int],
    request: Callable[[Mapping[TopicPartition, int]], Request],
    patience: float | None,
    *,
    skip_failed: bool,
) -> dict[TopicPartition, Any]:
    """Return the answer of each partition's leader. Leaders that have answered are not asked again.

    Args:
        asked: a number for each partition.
        request: makes the request to a leader from its share of `asked`.
        patience: as of `Brokers.connected`.
    """
    answers: dict[TopicPartition, Any] = {}

    def attempt(deadline: float) -> None:
        rest = {partition: number for partition, number in asked.items() if partition not in answers}
        metadata = brokers.metadata(sorted({partition.topic for partition in rest}), deadline)
        failures: list[BarnabasError] = []
        for address, share in _shares(rest, metadata, failures).items():
            ask = methodcaller("ask", request(share))
            try:
                response = brokers.connected(address, deadline, ask, patience)
            except ClientError as error:
                failures.append(error)
                continue
            for partition, each in by_partition(response):
                if each.error_code:
                    failures.append(_refusal(each.error_code, partition))
                else:
                    answers[partition] = each
        if failures and not skip_failed:
            raise failures[0]

    if asked:
        brokers.insist(attempt)
    return {partition: answers[partition] for partition in asked if partition in answers}


def _shares(
    asked: Mapping[TopicPartition, int], metadata: MetadataResponse, failures: list[BarnabasError]
) -> dict[Address, dict[TopicPartition, int]]:
    """Return each leader's share of the request; `failures` get the partitions that have no leader."""
    addresses = Brokers.addresses(metadata)
    leaders = {
        TopicPartition(topic.name or "", each.partition_index): each.leader_id
        for topic in metadata.topics
        for each in topic.partitions
    }
    shares: dict[Address, dict[TopicPartition, int]] = defaultdict(dict)
    for partition, number in asked.items():
        leader = leaders.get(partition)
        if leader is None:
            failures.append(_refusal(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, partition))
        elif leader not in addresses:
            failures.append(_refusal(ErrorCode.LEADER_NOT_AVAILABLE, partition))
        else:
            shares[addresses[leader]][partition] = number
    return shares


def _refusal(code: int, partition: TopicPartition) -> KafkaError:
    known = error_code(code)
    if known == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return KafkaError(known, f"there is no partition {partition}")
    return KafkaError(known, f"{partition}: {known.doc}")
