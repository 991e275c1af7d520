"""One fetch: read its partitions, and when they hold too little, wait for more."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from operator import is_not
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from barnabas.replication.partition import Partition
from barnabas.server.fetching.sessions import FetchSession, FetchTarget
from barnabas.types import NO_LEADER_EPOCH, TopicKey

if TYPE_CHECKING:
    from barnabas.metadata.image import PartitionState
    from barnabas.replication.manager import ReplicaManager


#: how many targets `Fetch.steps` reads at once
_TARGETS_A_STEP = 64


class Fetch:
    """A fetch in progress; `attempt` is tried at once and, while it answers None, again when there is more.

    Args:
        replicas: where the partitions are.
        targets: what to read, in this order.
        session: what the client has been told already; None for a full answer.
        min_bytes: how much is worth an answer before the time is up.
        max_bytes: the largest answer; the first batch is sent even when it is larger.
        committed: up to the last stable offset (read_committed) instead of the high watermark.
    """

    __slots__ = (
        "_committed",
        "_failed",
        "_left",
        "_max_bytes",
        "_min_bytes",
        "_read_bytes",
        "_replicas",
        "_results",
        "_seen",
        "_session",
        "_size",
        "_states",
        "_targets",
        "partitions",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        targets: Collection[FetchTarget],
        session: FetchSession | None,
        *,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
    ) -> None:
        self._replicas = replicas
        self._targets = targets
        self._session = session
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_bytes = max_bytes
        self._committed = committed
        #: those read at the last attempt
        self.partitions: list[Partition] = []
        self._states: list[PartitionState] = []
        self._seen = 0
        self._size = 0

    def attempt(self, final: bool) -> FetchResponse | None:
        """The response; None while there is too little to send, unless this attempt is `final`."""
        if self.partitions and not final and not self._is_worth_reading():
            return None
        self._begin()
        self._read_all(self._targets)
        response = self._respond_if_enough(final)
        if response is None:
            self._states = [partition.state for partition in self.partitions]
            self._seen = sum(partition.committed_bytes for partition in self.partitions)
        return response

    def steps(self) -> Iterator[None]:
        """As `attempt`, in steps of some targets each, for many of them; `outcome` is what comes of it."""
        self._begin()
        targets = list(self._targets)
        found: dict[Partition, tuple[PartitionState, int]] = {}
        for start in range(0, len(targets), _TARGETS_A_STEP):
            self._read_all(targets[start : start + _TARGETS_A_STEP])
            for partition in self.partitions:  # as they were when they were read: they go on meanwhile
                found.setdefault(partition, (partition.state, partition.committed_bytes))
            self.partitions = []
            yield
        self.partitions = list(found)
        self._states = [state for state, _ in found.values()]
        self._seen = sum(committed for _, committed in found.values())

    def outcome(self, final: bool) -> FetchResponse | None:
        """What `attempt` returns, after the last of the `steps`."""
        return self._respond_if_enough(final)

    def has_moved(self) -> bool:
        """Whether the steps are worth taking again for what came while they were taken."""
        states = (partition.state for partition in self.partitions)
        moved = self._seen != sum(partition.committed_bytes for partition in self.partitions)
        return (moved or any(map(is_not, states, self._states))) and self._is_worth_reading()

    def is_due(self, final: bool) -> bool | None:
        """Whether the steps are worth taking again; None for not yet."""
        return final or self._is_worth_reading() or None

    def _begin(self) -> None:
        self.partitions = []
        self._left, self._read_bytes, self._failed = self._max_bytes, 0, False
        self._results: list[tuple[FetchTarget, PartitionData]] = []

    def _read_all(self, targets: Collection[FetchTarget]) -> None:
        left, size = self._left, self._read_bytes
        results = self._results
        for target in targets:
            data = self._read(target, min(left, target.max_bytes), size == 0)
            if data.error_code or data.diverging_epoch.epoch >= 0:
                self._failed = True
            elif data.records:
                read = sum(map(len, data.records))
                size += read
                left = max(0, left - read)
            results.append((target, data))
        self._left, self._read_bytes = left, size

    def _respond_if_enough(self, final: bool) -> FetchResponse | None:
        results, self._results = self._results, []
        size = self._read_bytes
        if size >= self._min_bytes or self._failed or final or not results:
            return self._respond(results)
        self._size = size
        return None

    def _is_worth_reading(self) -> bool:
        """Whether enough was committed since the last attempt, or a partition has changed hands or gone."""
        if self._committed:
            return True  # the end of a transaction lets out more than its own bytes
        new = sum(partition.committed_bytes for partition in self.partitions) - self._seen
        return self._size + new >= self._min_bytes or any(
            partition.state is not state or partition.unavailable
            for partition, state in zip(self.partitions, self._states, strict=True)
        )

    def _read(self, target: FetchTarget, max_bytes: int, min_one: bool) -> PartitionData:
        try:
            partition = self._replicas.find(target.topic, target.index)
            self.partitions.append(partition)
            partition.check_leader(target.current_leader_epoch)
            log = partition.log
            data = PartitionData(
                partition_index=target.index,
                high_watermark=log.high_watermark,
                last_stable_offset=log.last_stable_offset,
                log_start_offset=log.log_start_offset,
                aborted_transactions=[] if self._committed else None,
                records=b"",
            )
            if target.last_fetched_epoch >= 0 and self._diverges(partition, target, data):
                return data
            bound = data.last_stable_offset if self._committed else data.high_watermark
            if target.offset != bound and (max_bytes > 0 or min_one):
                fetched = log.read(target.offset, max_bytes, bound, min_one)
                data.records = fetched.chunks
                if self._committed and fetched.size:
                    data.aborted_transactions = [
                        AbortedTransaction(producer_id=t.producer_id, first_offset=t.first_offset)
                        for t in log.aborted_transactions(target.offset, fetched.size)
                    ]
            return data
        except KafkaError as error:
            return PartitionData(
                partition_index=target.index,
                error_code=error.code,
                high_watermark=-1,
                aborted_transactions=[] if self._committed else None,
                records=b"",
            )

    @staticmethod
    def _diverges(partition: Partition, target: FetchTarget, data: PartitionData) -> bool:
        """Tell a fetcher whose log parts ways with this one where to truncate (KIP-595)."""
        epoch, end_offset = partition.end_offset_for_epoch(target.last_fetched_epoch)
        if epoch == NO_LEADER_EPOCH:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if epoch == target.last_fetched_epoch and end_offset >= target.offset:
            return False
        data.diverging_epoch = EpochEndOffset(epoch=epoch, end_offset=end_offset)
        return True

    def _respond(self, results: list[tuple[FetchTarget, PartitionData]]) -> FetchResponse:
        session = self._session
        topics: list[FetchableTopicResponse] = []
        current: TopicKey | None = None
        for target, data in results:
            if session is not None:
                if not target.is_news(data) and session.epoch > 1:
                    continue
                if data.records:
                    session.rotate(target)
            if target.topic != current:
                current = target.topic
                topics.append(
                    FetchableTopicResponse(topic=current)
                    if isinstance(current, str)
                    else FetchableTopicResponse(topic_id=current)
                )
            topics[-1].partitions.append(data)
        return FetchResponse(session_id=session.session_id if session else 0, responses=topics)
