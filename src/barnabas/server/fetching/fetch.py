"""One fetch: read its partitions, and when they hold too little, wait for more."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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
from barnabas.replication.purgatory import Watcher
from barnabas.server.fetching.sessions import FetchSession, FetchTarget
from barnabas.types import NO_LEADER_EPOCH, Chunk, TopicKey

if TYPE_CHECKING:
    from barnabas.replication.manager import ReplicaManager


#: how many targets `Fetch.steps` reads at once
_TARGETS_A_STEP = 64


class Fetch:
    """A fetch in progress; `attempt` is tried at once and, while it answers None, again when there is more.

    A partition that had nothing is read again only after it has had news: what a wake-up costs does not grow
    with the number of partitions that the client waits for.

    Args:
        replicas: where the partitions are.
        wanted: what to read, in this order; or the session that knows it, and what the client has been told.
        min_bytes: how much is worth an answer before the time is up.
        max_bytes: the largest answer; the first batch is sent even when it is larger.
        committed: up to the last stable offset (read_committed) instead of the high watermark.
    """

    __slots__ = (
        "_committed",
        "_failed",
        "_has_changed",
        "_is_watching",
        "_left",
        "_max_bytes",
        "_min_bytes",
        "_new_bytes",
        "_read_bytes",
        "_replicas",
        "_results",
        "_session",
        "_unread",
        "watchers",
    )

    def __init__(
        self,
        replicas: ReplicaManager,
        wanted: FetchSession | Iterable[FetchTarget],
        *,
        min_bytes: int,
        max_bytes: int,
        committed: bool,
    ) -> None:
        self._replicas = replicas
        self._min_bytes = min(min_bytes, max_bytes)
        self._max_bytes = max_bytes
        self._committed = committed
        self._session = wanted if isinstance(wanted, FetchSession) else None
        targets = wanted.to_read(committed=committed) if isinstance(wanted, FetchSession) else wanted
        #: what the next attempt reads: what it has not read, what had records, and what has had news
        self._unread: dict[FetchTarget, None] = dict.fromkeys(targets)
        #: what was read; None for what has to be read again
        self._results: dict[FetchTarget, PartitionData | None] = {}
        self._is_watching = False
        self._new_bytes = 0

    @property
    def unread(self) -> int:
        """How many partitions the next attempt reads."""
        return len(self._unread)

    def attempt(self, final: bool) -> FetchResponse | None:
        """The response; None while there is too little to send, unless this attempt is `final`."""
        if self._is_watching and not final and not self._is_worth_reading():
            return None
        self._begin()
        unread, self._unread = self._unread, {}
        self._read_all(unread)
        return self._respond_if_enough(final)

    def steps(self) -> Iterator[None]:
        """As `attempt`, in steps of some partitions each, for many of them; `outcome` is what comes of it."""
        self.watch()  # partitions go on between the steps
        self._begin()
        unread, self._unread = list(self._unread), {}
        for start in range(0, len(unread), _TARGETS_A_STEP):
            self._read_all(unread[start : start + _TARGETS_A_STEP])
            yield

    def outcome(self, final: bool) -> FetchResponse | None:
        """What `attempt` returns, after the last of the `steps`."""
        return self._respond_if_enough(final)

    def has_moved(self) -> bool:
        """Whether the steps are worth taking again for what came while they were taken."""
        return bool(self._new_bytes or self._has_changed) and self._is_worth_reading()

    def is_due(self, final: bool) -> bool | None:
        """Whether the steps are worth taking again; None for not yet."""
        return final or self._is_worth_reading() or None

    def has_news(self, target: FetchTarget, new_bytes: int) -> None:
        """A partition has moved (`NewsListener`)."""
        self._unread[target] = None
        if new_bytes:
            self._new_bytes += new_bytes
        else:
            self._has_changed = True
        for watcher in self.watchers:
            watcher.progressed(new_bytes)

    def watch(self) -> None:
        """Hear of news from now on."""
        if not self._is_watching:
            self._is_watching = True
            #: the operation that waits for this fetch to progress
            self.watchers: dict[Watcher, None] = {}
            if self._session is not None:
                self._session.join(self)
                return
            for target in (*self._results, *self._unread):
                target.watch(self)

    def close(self, _future: object = None) -> None:
        """Hear nothing more: there is an answer, or nobody waits for one."""
        if self._is_watching:
            self._is_watching = False
            if self._session is not None:
                self._session.leave(self)
                return
            for target in (*self._results, *self._unread):
                target.unwatch()

    def _begin(self) -> None:
        self._has_changed = self._failed = False
        self._new_bytes = self._read_bytes = 0
        self._left = self._max_bytes

    def _read_all(self, targets: Iterable[FetchTarget]) -> None:
        left, size = self._left, self._read_bytes
        results = self._results
        is_incremental = self._session is not None and self._session.epoch > 1
        for target in targets:
            if is_incremental and size and not left:
                break  # the others stay ready for the next request: reading on would cost and send nothing
            data = self._read(target, min(left, target.max_bytes), size == 0)
            if data.error_code or data.diverging_epoch.epoch >= 0:
                self._failed = True
            elif data.records:
                chunks: list[Chunk] = data.records  # type: ignore[assignment]
                read = sum(map(len, chunks))
                size += read
                left = max(0, left - read)
            results[target] = data
        self._left, self._read_bytes = left, size

    def _respond_if_enough(self, final: bool) -> FetchResponse | None:
        size = self._read_bytes
        session = self._session
        is_of_nothing = not (self._results if session is None else session.targets)
        if size >= self._min_bytes or self._failed or final or is_of_nothing:
            response = self._respond()
            self.close()
            return response
        if size:
            results = self._results
            for target, data in results.items():
                if data is not None and data.records:  # not to be kept: the log goes on
                    results[target] = None
                    self._unread[target] = None
        self.watch()
        return None

    def _is_worth_reading(self) -> bool:
        """Whether enough was committed since the last attempt, or a partition has changed hands or gone."""
        if self._committed and self._new_bytes:
            return True  # the end of a transaction lets out more than its own bytes
        return self._has_changed or self._read_bytes + self._new_bytes >= self._min_bytes

    def _read(self, target: FetchTarget, max_bytes: int, min_one: bool) -> PartitionData:
        try:
            partition = target.find_partition(self._replicas)
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

    def _respond(self) -> FetchResponse:
        session = self._session
        topics: list[FetchableTopicResponse] = []
        current: TopicKey | None = None
        for target, data in self._results.items():
            if data is None:
                continue
            if session is not None:
                is_news = target.is_news(data)
                if data.records:
                    session.was_served(target)
                elif self._has_nothing_left(target, data):
                    session.was_told(target)
                if not is_news and session.epoch > 1:
                    continue
            if target.topic != current:
                current = target.topic
                topics.append(
                    FetchableTopicResponse(topic=current)
                    if isinstance(current, str)
                    else FetchableTopicResponse(topic_id=current)
                )
            topics[-1].partitions.append(data)
        return FetchResponse(session_id=session.session_id if session else 0, responses=topics)

    def _has_nothing_left(self, target: FetchTarget, data: PartitionData) -> bool:
        """Whether a partition has no more records to send, and no news since it was read."""
        bound = data.last_stable_offset if self._committed else data.high_watermark
        return (
            target.offset == bound
            and not data.error_code
            and data.diverging_epoch.epoch < 0
            and target not in self._unread
        )
