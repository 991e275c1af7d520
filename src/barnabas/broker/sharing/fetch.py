"""One share fetch: acquires records from the partitions of its session, or waits until one has records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from barnabas.base.errors import KafkaError
from barnabas.base.types import Chunk
from barnabas.broker.sharing.in_flight import Acquired
from barnabas.broker.sharing.sessions import Member, Target
from barnabas.broker.sharing.share_partition import FetchLimits, SharePartition
from barnabas.broker.sharing.share_partitions import SharePartitions

T = TypeVar("T")

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

    First `steps` acquires the records that are available. If no records are available, `wait` registers the
    fetch with every share partition. The first share partition with records, or with an error, ends the wait.
    A fetch that waits has acquired no records, so nothing must be released if its client disconnects.

    If `min_bytes` is above 1, the fetch acquires records only when all share partitions together have that
    many bytes. When one share partition changes, the fetch counts only its bytes again. At the time
    limit, `end_wait` acquires what is available.

    Args:
        member: the member that fetches.
        targets: the partitions, in the order in which to try them.
        partitions: finds the share partitions.
        refuses: returns the error for a partition that the client may not read, None for any other.
        limits: apply to all partitions together.
        min_bytes: the number of bytes to wait for. With 0 or 1, any record is enough.
        is_open: returns whether the member's session is still open. If not, the fetch acquires nothing more:
            its client may have gone, and the records would be locked until their locks time out.
    """

    def __init__(
        self,
        member: Member,
        targets: Iterable[Target],
        partitions: SharePartitions,
        refuses: Callable[[Target], KafkaError | None],
        limits: FetchLimits,
        min_bytes: int = 1,
        is_open: Callable[[], bool] = lambda: True,
    ) -> None:
        #: whether the fetch waits for more bytes than one record has (`WaitingFetch`)
        self.waits_for_bytes = min_bytes > 1
        self._wanted = min(min_bytes, limits.max_bytes)
        #: the share partitions with available bytes when they told last, and the sum of these bytes
        self._available: dict[SharePartition, int] = {}
        self._sum = 0
        #: whether `_acquire_all` is at work, and whether it must not wait for more bytes
        self._is_acquiring = self._is_late = False
        self._member = member
        self._targets = list(targets)
        self._partitions = partitions
        self._refuses = refuses
        self._limits = limits
        self._is_open = is_open
        self._bytes = self._records = 0
        #: the partitions that have given records or failed so far
        self.results: list[Fetched] = []
        #: the share partitions without records, for whose records the fetch can wait
        self._sources: dict[SharePartition, Target] = {}
        self._on_result: Callable[[], object] | None = None
        self._run: Callable[[Iterator[None]], object] | None = None

    @property
    def size(self) -> int:
        """The size of the acquired records so far, in bytes."""
        return self._bytes

    @property
    def requested(self) -> int:
        """The number of requested partitions."""
        return len(self._targets)

    @property
    def acquired(self) -> int:
        """The number of partitions whose records are acquired so far."""
        return sum(1 for each in self.results if each.acquired)

    def steps(self) -> Iterator[None]:
        """Acquire records from the fetch's partitions, in their order, until one of the `limits` is reached.

        `results` gets the records, and the errors of partitions. If the partitions together have fewer bytes
        than the `min_bytes` of the fetch, and none has an error, acquire nothing.

        The iterator yields None after each 64 partitions, so that the caller can let the event loop serve
        requests.
        """
        for targets in _in_steps(self._targets):
            for target in targets:
                if self._is_full:
                    return
                self._try(target)
            yield
        if self.waits_for_bytes:
            yield from self._acquire_all(list(self._sources))

    @property
    def _is_full(self) -> bool:
        limits = self._limits
        return self._records >= limits.max_records or (0 < self._bytes >= limits.max_bytes)

    def _acquire_all(self, uncounted: Iterable[SharePartition]) -> Iterator[None]:
        """Count the available bytes. If there are `min_bytes`, acquire records from all share partitions.

        After `end_wait`, or if `results` has an entry already, acquire records however few bytes there are.
        At the end, call `on_result` if `results` has an entry, or after `end_wait`.

        The iterator yields None after each 64 share partitions.

        Args:
            uncounted: the share partitions whose bytes are counted. Any other share partition counts as 0
                bytes.
        """
        self._is_acquiring = True
        self._available.clear()
        self._sum = 0
        yield from self._count_all(uncounted)
        if self._must_acquire:
            yield from self._acquire_rest()
        self._is_acquiring = False
        has_result = self._report(self._is_late or bool(self.results))
        if not has_result and self._available and self._sum >= self._wanted:
            next(iter(self._available)).wake()  # it has got records since it was tried

    def _count_all(self, uncounted: Iterable[SharePartition]) -> Iterator[None]:
        for sources in _in_steps(uncounted):
            if self._must_acquire or not self._sources:
                return
            for source in sources:
                self._count(source)
            if len(sources) == _TARGETS_A_STEP:
                yield

    def _acquire_rest(self) -> Iterator[None]:
        for sources in _in_steps(self._sources.items()):
            for source, target in sources:
                if self._is_full or source not in self._sources:
                    return
                if not self._acquire(source, target):
                    self._set_available(source, 0)
            if len(sources) == _TARGETS_A_STEP:
                yield

    @property
    def _must_acquire(self) -> bool:
        return self._is_late or bool(self.results) or self._sum >= self._wanted

    def _count(self, source: SharePartition) -> None:
        self._set_available(source, source.available_bytes(self._wanted))

    def _set_available(self, source: SharePartition, size: int) -> None:
        self._sum += size - self._available.pop(source, 0)
        if size:
            self._available[source] = size

    def wait(self, on_result: Callable[[], object], run: Callable[[Iterator[None]], object]) -> None:
        """Register this fetch with all its share partitions, and return at once.

        When a share partition may have records for this fetch, it calls `try_now`. The caller must call
        `leave` when the wait ends.

        Args:
            on_result: called without arguments when `results` has got an entry. It is also called after
                `end_wait`, even if `results` is empty.
            run: called with an iterator. `run` must take all steps of the iterator, in later turns of the
                event loop. Only a fetch that waits for `min_bytes` calls `run`.
        """
        self._on_result, self._run = on_result, run
        for source in self._sources:
            source.waiting_fetches[self] = None
            if not self.waits_for_bytes:
                source.wake()
        if self.waits_for_bytes and len(self._targets) >= _TARGETS_A_STEP:
            self._begin(list(self._sources))  # between the `steps`, share partitions may have changed

    def end_wait(self) -> None:
        """End the wait at its time limit, and call `on_result` even if `results` is empty.

        If the fetch waits for `min_bytes`, first acquire all available records. This can need later turns of
        the event loop.
        """
        self._is_late = True
        if not self.waits_for_bytes:
            self._report(True)
        elif not self._is_acquiring:
            self._begin(())

    def _begin(self, uncounted: Iterable[SharePartition]) -> None:
        """Execute the first step of `_acquire_all` at once. Its other steps follow in later turns."""
        assert self._run is not None
        steps = self._acquire_all(uncounted)
        for _ in steps:
            self._run(steps)
            return

    def leave(self, _future: object = None) -> None:
        """Stop waiting for records. The argument is ignored: it makes this method a future's callback."""
        self._on_result = None
        for source in self._sources:
            source.waiting_fetches.pop(self, None)
        self._sources.clear()

    def try_now(self, source: SharePartition) -> bool:
        """Try to end the wait, because the share partition `source` has changed.

        Return whether `results` has an entry now: records, or an error. Also return True if the session is
        no longer open, after a call of `on_result`.

        - If the fetch does not wait for `min_bytes`, acquire records from `source`. Call `on_result` if
          `results` has got an entry.
        - If the fetch waits for `min_bytes`, only count the bytes of `source`. If all share partitions
          together now have enough bytes, begin to acquire records from all of them. This can continue in
          later turns of the event loop, after this method has returned. At the end, it calls `on_result`.
        """
        if not self._is_open():
            return self._report(True)
        if not self.waits_for_bytes:
            return self._report(self._acquire(source, self._sources[source]))
        self._count(source)
        if self._is_acquiring or self._sum < self._wanted:
            return False
        self._begin(list(self._available))  # other members may have acquired records since
        return bool(self.results)

    def failed(self, source: SharePartition, error: KafkaError) -> None:
        """Add `error` to `results`, because the share partition `source` has ended, and call `on_result`."""
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
        """Acquire records from one partition. Return whether `results` got an entry: records, or an error."""
        if not self._is_open():
            return False
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


def _in_steps(items: Iterable[T]) -> Iterator[tuple[T, ...]]:
    """Yield all items in groups of at most `_TARGETS_A_STEP`. A step of `ShareFetch` processes one group."""
    left = iter(list(items))
    while some := tuple(islice(left, _TARGETS_A_STEP)):
        yield some
