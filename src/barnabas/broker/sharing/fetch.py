"""One share fetch: acquires records from the partitions of its session, or waits until one has records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from barnabas.base.errors import KafkaError
from barnabas.base.types import Chunk
from barnabas.broker.sharing.in_flight import Acquired
from barnabas.broker.sharing.sessions import Member, Target
from barnabas.broker.sharing.share_partition import FetchLimits, SharePartition
from barnabas.broker.sharing.share_partitions import SharePartitions

#: how many targets are tried in one step
_TARGETS_A_STEP = 64


class Fetched(NamedTuple):
    """The result of a share fetch for one partition: records, or an error."""

    target: Target
    records: Chunk = b""
    acquired: tuple[Acquired, ...] = ()
    error: KafkaError | None = None


class ShareFetch:
    """A share fetch in progress.

    First `steps` acquires the records that are available. If there are none, `wait` registers the fetch with
    every share partition. The first share partition with records, or with an error, ends the wait. A fetch
    that waits has acquired no records, so nothing must be released if its client disconnects.

    With `min_bytes`, a fetch waits until all share partitions together have so many bytes. At the time limit,
    `acquire_rest` acquires what is available.

    Args:
        member: the member that fetches.
        targets: the partitions, in the order in which to try them.
        partitions: finds the share partitions.
        refuses: returns the error for a partition that the client may not read, None for any other.
        limits: apply to all partitions together.
        min_bytes: the number of bytes to wait for; at most 1 for any record.
    """

    def __init__(
        self,
        member: Member,
        targets: Iterable[Target],
        partitions: SharePartitions,
        refuses: Callable[[Target], KafkaError | None],
        limits: FetchLimits,
        min_bytes: int = 1,
    ) -> None:
        #: whether the fetch waits for more bytes than one record has (`WaitingFetch`)
        self.waits_for_bytes = min_bytes > 1
        self._min_bytes = min_bytes
        self._member = member
        self._targets = list(targets)
        self._partitions = partitions
        self._refuses = refuses
        self._limits = limits
        self._bytes = self._records = 0
        #: the partitions that have given records or failed so far
        self.results: list[Fetched] = []
        #: the share partitions without records, for whose records the fetch can wait
        self._sources: dict[SharePartition, Target] = {}
        self._on_result: Callable[[], object] | None = None

    @property
    def size(self) -> int:
        """The size of the acquired records so far, in bytes."""
        return self._bytes

    def steps(self) -> Iterator[None]:
        """Acquire records from the targets, 64 targets a step, until one of the `limits` is reached.

        If the fetch waits for more bytes than there are, acquire nothing.
        """
        for begin in range(0, len(self._targets), _TARGETS_A_STEP):
            for target in self._targets[begin : begin + _TARGETS_A_STEP]:
                if self._is_full:
                    return
                self._try(target)
            yield
        if self.waits_for_bytes and (self.results or self._has_enough()):
            self.acquire_rest()

    def acquire_rest(self) -> None:
        """Acquire records from all share partitions that have given none, until a limit is reached."""
        self.waits_for_bytes = False
        for source, target in list(self._sources.items()):
            if self._is_full:
                return
            self._acquire(source, target)

    @property
    def _is_full(self) -> bool:
        limits = self._limits
        return self._records >= limits.max_records or (0 < self._bytes >= limits.max_bytes)

    def _has_enough(self) -> bool:
        size = 0
        for source in self._sources:
            size += source.available_bytes(min(self._min_bytes, self._limits.max_bytes))
            if size >= min(self._min_bytes, self._limits.max_bytes):
                return True
        return False

    def wait(self, on_result: Callable[[], object]) -> None:
        """Wait for records of all share partitions, and call `on_result` when `results` gets an entry.

        The caller must call `leave` when the wait ends.
        """
        self._on_result = on_result
        for source in self._sources:
            source.waiting_fetches[self] = None
            source.wake()

    def leave(self, _future: object = None) -> None:
        """Stop waiting for records. The argument is ignored: it makes this method a future's callback."""
        self._on_result = None
        for source in self._sources:
            source.waiting_fetches.pop(self, None)
        self._sources.clear()

    def try_now(self, source: SharePartition) -> bool:
        """Acquire records from `source`. Return whether there is a result: records, or an error.

        If there is a result, also call `on_result`.
        """
        if self.waits_for_bytes:
            if not self._has_enough():
                return False
            self.acquire_rest()
            return self._report(bool(self.results))
        return self._report(self._acquire(source, self._sources[source]))

    def failed(self, source: SharePartition, error: KafkaError) -> None:
        """Add `error` as the result for `source`, which has ended, and call `on_result`."""
        self._report(self._note(self._sources[source], error))

    def _report(self, has_result: bool) -> bool:
        if has_result and self._on_result is not None:
            self._on_result()
        return has_result

    def _try(self, target: Target) -> None:
        try:
            source = self._partitions.find(self._member.group, *target)
        except KafkaError as error:
            self._note(target, error)
            return
        if self.waits_for_bytes or not self._acquire(source, target):
            self._sources[source] = target

    def _acquire(self, source: SharePartition, target: Target) -> bool:
        """Acquire records from one partition. Return whether `results` has got an entry, or an error."""
        error = self._refuses(target)
        if error is not None:
            return self._note(target, error)
        left = self._limits._replace(
            max_bytes=max(0, self._limits.max_bytes - self._bytes),
            min_one=not self._bytes,
            max_records=self._limits.max_records - self._records,
        )
        try:
            found = source.acquire(self._member.member_id, left)
        except KafkaError as failure:
            return self._note(target, failure)
        if found is None:
            return False
        self._bytes += len(found.records)
        self._records += sum(last - first + 1 for first, last, _ in found.acquired)
        self.results.append(Fetched(target, found.records, tuple(found.acquired)))
        return True

    def _note(self, target: Target, error: KafkaError) -> bool:
        self.results.append(Fetched(target, error=error))
        return True
