"""Offsets of many logs at once, by the word of their leaders: one request for each, under way together.

The ends of a log and the offsets of a time are asked with the same request (ListOffsets).
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.errors import ErrorCode
from barnabas.base.types import BrokerId, TopicPartition
from barnabas.client.connection import Repeated
from barnabas.client.errors import AuthenticationError, ClientError, error_code
from barnabas.client.offset_requests import by_partition, offsets_request
from barnabas.spark.cluster import Cluster
from barnabas.spark.ranges import Offsets


@dataclass
class Answers:
    """What the leaders have said: `offsets`, and why those that are missing there are."""

    offsets: Offsets = field(default_factory=dict)
    refused: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    #: of leaders that gave no answer
    silent: dict[TopicPartition, ClientError] = field(default_factory=dict)


class OffsetQuestion:
    """Which offsets logs have, asked as often as one likes; what is not new costs next to nothing."""

    def __init__(
        self, cluster: Cluster, wanted: Offsets, leader_of: Mapping[TopicPartition, BrokerId]
    ) -> None:
        """`wanted` has a time, or an end of the log, for each; a leader below 0 is none."""
        self._cluster = cluster
        self._partitions: dict[BrokerId, list[TopicPartition]] = {}
        for tp in wanted:
            self._partitions.setdefault(leader_of[tp], []).append(tp)
        self._leaderless = self._partitions.pop(-1, [])
        self._questions = {
            leader: Repeated(
                offsets_request(
                    {tp: wanted[tp] for tp in partitions}, committed=cluster.settings.read_committed
                )
            )
            for leader, partitions in self._partitions.items()
        }
        self._known: list[Any] | None = None  # the answers that `_answers` is put together of
        self._answers = Answers()

    def ask(self) -> Answers:
        """The same object as the last time when the leaders say the same. Raises AuthenticationError."""
        silent: dict[BrokerId, ClientError] = {}
        for leader, question in self._questions.items():
            try:
                self._cluster.leader(leader).send_again(question)
            except ClientError as error:
                silent[leader] = self._leave(leader, error)
        for leader, question in self._questions.items():
            if leader not in silent:
                try:
                    self._cluster.leader(leader).receive_again(question)
                except ClientError as error:
                    silent[leader] = self._leave(leader, error)
        answers = [question.answer for question in self._questions.values()]
        if silent or not self._is_known(answers):
            self._answers = self._put_together(silent)
            self._known = None if silent else answers
        return self._answers

    def _leave(self, leader: BrokerId, error: ClientError) -> ClientError:
        self._cluster.leave(leader)
        return error

    def _is_known(self, answers: list[Any]) -> bool:
        return self._known is not None and all(map(operator.is_, answers, self._known))

    def _put_together(self, silent: dict[BrokerId, ClientError]) -> Answers:
        for error in silent.values():
            if isinstance(error, AuthenticationError):
                raise error
        put = Answers(refused=dict.fromkeys(self._leaderless, ErrorCode.LEADER_NOT_AVAILABLE))
        for leader, question in self._questions.items():
            if leader in silent:
                put.silent |= dict.fromkeys(self._partitions[leader], silent[leader])
                continue
            for tp, each in by_partition(question.answer):
                if each.error_code:
                    put.refused[tp] = error_code(each.error_code)
                else:
                    put.offsets[tp] = each.offset
        return put
