"""Builds the responses of the share coordinator's APIs, which have a result for each share partition."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.base.errors import KafkaError
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable, resolve
from barnabas.broker.coordinator import SharePartitionKey

T = TypeVar("T")


def each_partition(
    request: Any,
    result: type[Any],
    partition_result: type[Any],
    ask: Callable[[SharePartitionKey, Any], MaybeAwaitable[T]],
    fields: Callable[[T], Mapping[str, Any]] = lambda _: {},
) -> MaybeAwaitable[list[Any]]:
    """Call `ask` for each partition of a request, and return the list of topic results.

    If `ask` returns awaitables, return an awaitable of the list. An error of one partition does not affect
    the others.

    Args:
        request: has a `group_id`, and `topics` with a `topic_id` and `partitions`.
        result: message class of a topic's result.
        partition_result: message class of a partition's result.
        ask: called with a share partition and the request's entry for it; returns a value or an awaitable of
            a value, or raises KafkaError.
        fields: returns the fields of a partition's result for the value that `ask` returned.
    """
    results = []
    waiting: list[tuple[Any, MaybeAwaitable[T]]] = []
    for topic in request.topics:
        partitions = []
        for wanted in topic.partitions:
            found = partition_result(partition=wanted.partition)
            partitions.append(found)
            try:
                answer = ask(SharePartitionKey(request.group_id, topic.topic_id, wanted.partition), wanted)
            except KafkaError as error:
                _fail(found, error)
                continue
            if is_awaitable(answer):
                waiting.append((found, answer))
            else:
                _fill(found, fields(answer))
        results.append(result(topic_id=topic.topic_id, partitions=partitions))
    return _completed(results, waiting, fields) if waiting else results


async def _completed(
    results: list[Any],
    waiting: Sequence[tuple[Any, MaybeAwaitable[T]]],
    fields: Callable[[T], Mapping[str, Any]],
) -> list[Any]:
    answers = await asyncio.gather(*(resolve(answer) for _, answer in waiting), return_exceptions=True)
    for (found, _), answer in zip(waiting, answers, strict=True):
        if isinstance(answer, KafkaError):
            _fail(found, answer)
        elif isinstance(answer, BaseException):
            raise answer
        else:
            _fill(found, fields(answer))
    return results


def _fill(found: Any, fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        setattr(found, name, value)


def _fail(found: Any, error: KafkaError) -> None:
    found.error_code, found.error_message = error.code, error.message
