"""The runtime of every coordinator: it appends records, replays them when they are committed, and replies.

A coordinator (of groups or of transactions) is divided into shards, one for each partition of its internal
topic. The runtime knows neither groups nor transactions. `barnabas.broker.coordinator.contract` defines
shards and operations.

Writes: only the runtime changes the state of a shard, by `Shard.replay`. An operation reads the shard and
returns typed records. The runtime encodes them once, appends them to the shard's partition as one batch, and
replays the same typed records after they are committed. Only the loading of a partition decodes records. So
nothing must be reverted after a failed append, and a restart, which replays the same records, ends in the
same state.

Reads: in `write`, an operation sees the outcome of all earlier operations on its key (a group id, a
transactional id). Operations of a key run one after another. Only `shared` operations do not wait for each
other (see `KeyedLock`). `read` sees committed records only, and does not wait for pending appends.

Guarantees of a reply:
- A response means that the records are committed and replayed: no failover of the partition loses them.
- The runtime replays records in the order of the log. So it always replays a transaction's records before
  the marker that makes them valid (KIP-98).
- An operation that raises, or whose records cannot be encoded, appends nothing. Its caller gets the error.
- Any other error leaves the outcome open: the append failed, or its records may still be committed. Memory
  agrees with the log in both cases, because the runtime never replays a failed append. When the outcome of an
  append is unknown, the log accepts no other append in the same leader epoch. After the write timeout the
  caller gets COORDINATOR_NOT_AVAILABLE, and the runtime still replays the records when they are committed.
- After a partition has moved to another broker, the reply is NOT_COORDINATOR. The next coordinator reads
  the log.

On a single replica an append is committed at once. Then a whole operation runs without a task or a future.
One event loop owns the runtime.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import Enum
from functools import partial
from typing import Any, Generic, TypeVar

from barnabas.base.environment.clock import Clock
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, LeaderEpoch, Offset, ProducerIdentity
from barnabas.broker.awaitables import MaybeAwaitable, is_awaitable, resolve
from barnabas.broker.coordinator.backoff import LimitedWarnings
from barnabas.broker.coordinator.contract import Operation, Result, S, Shard, ShardContext
from barnabas.broker.coordinator.keyed_lock import KeyedLock
from barnabas.broker.coordinator.loading import Extends, InternalLog, load
from barnabas.broker.coordinator.timers import Timers
from barnabas.kafka.records import Compression, Record, encode_batch
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

logger = logger_of(__name__)

T = TypeVar("T")

#: least and most milliseconds between two attempts to load a partition whose log cannot be opened or read now
_LOAD_AGAIN_MS, _MAX_LOAD_AGAIN_MS = 2_000, 60_000
#: the same, as a multiple of the time that the last attempt took
_PAUSE_FACTOR = 5

_NO_PRODUCER = ProducerIdentity(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)


class _State(Enum):
    LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    ACTIVE = ErrorCode.NONE
    FAILED = ErrorCode.NOT_COORDINATOR


class _Append:
    """The records that one operation has appended, and its reply. The records may not be committed yet."""

    __slots__ = ("error", "is_settled", "key", "reply", "result", "shared", "timeout")

    def __init__(
        self, key: str, shared: bool, result: Result[Any], reply: asyncio.Future[Any] | None
    ) -> None:
        self.key = key
        self.shared = shared
        self.result = result
        self.reply = asyncio.get_running_loop().create_future() if reply is None else reply
        self.timeout: asyncio.TimerHandle
        self.is_settled = False
        self.error: KafkaError | None = None


class _Slot(Generic[S]):
    """A partition that this broker coordinates: its shard, locks, timers and pending appends."""

    __slots__ = ("appends", "epoch", "loading", "lock", "shard", "state", "timers")

    def __init__(self, epoch: LeaderEpoch, timers: Timers) -> None:
        self.epoch = epoch
        self.state = _State.LOADING
        self.timers = timers
        self.shard: S
        self.loading: asyncio.Task[None] | None = None
        self.lock = KeyedLock()
        #: in the order of the log, in which they are replayed
        self.appends: deque[_Append] = deque()


class CoordinatorRuntime(Generic[S]):
    """Runs operations on the shards of one internal topic. One event loop owns it.

    Args:
        name: the name of the internal topic, for log messages.
        log: the partitions of the internal topic.
        clock: gives the timestamps of records.
        make_shard: called with the context of a partition; returns a new shard without state.
        write_timeout_ms: time limit of an append; after it the client gets a retriable error.
        extends: called with the key of each loaded record. If the record adds to the record of another key,
            this function returns the other key. If the record replaces the earlier records of its own key,
            the function returns None. Without `extends`, each record replaces the earlier ones of its key.
        compression: the compression of appended batches.
    """

    def __init__(
        self,
        name: str,
        log: InternalLog,
        clock: Clock,
        make_shard: Callable[[ShardContext[S]], S],
        *,
        write_timeout_ms: int,
        extends: Extends | None = None,
        compression: Compression = Compression.NONE,
    ) -> None:
        self._name = name
        self._log = log
        self._clock = clock
        self._make_shard = make_shard
        self._write_timeout = write_timeout_ms / 1000
        self._extends = extends
        self._compression = compression
        self._slots: dict[int, _Slot[S]] = {}
        self._warnings = LimitedWarnings(logger)
        #: loads one partition at a time: each turn of the loop reads one piece
        self._load_turn = asyncio.Lock()

    # --- leadership ---

    def elect(self, partition: int, epoch: LeaderEpoch) -> None:
        """Start to coordinate `partition`, which this broker now leads in `epoch`.

        Load the partition's state in the background, and serve requests after that. If this broker already
        coordinates the partition in this epoch or a later one, do nothing. If the loading in this epoch has
        failed, load again. If the log cannot be opened or read now, for example on a full disk, try again
        until it can.
        """
        slot = self._slots.get(partition)
        if slot is not None:
            if epoch < slot.epoch or (epoch == slot.epoch and slot.state is not _State.FAILED):
                return
            # Another broker may have led in between, or this one may have lost records: load everything.
            self.resign(partition)
        slot = self._slots[partition] = _Slot(epoch, Timers())
        slot.shard = self._new_shard(partition, slot)
        try:
            # The log's end, not the high watermark: the last leader may have committed and answered records
            # above the high watermark that a new leader knows.
            start, end = self._log.bounds(partition, epoch)
        except KafkaError as error:
            self._load_failed(partition, slot, error)
            return
        if start == end:
            self._activate(slot)
            return
        slot.loading = start_task(
            self._load(partition, slot, start, end), f"loading of coordinator {partition}"
        )

    def resign(self, partition: int) -> None:
        """Stop coordinating `partition`. Drop its state, and answer waiting requests with NOT_COORDINATOR."""
        slot = self._slots.pop(partition, None)
        if slot is None:
            return
        if slot.loading is not None:
            slot.loading.cancel()
        slot.timers.close()
        gone = KafkaError(ErrorCode.NOT_COORDINATOR)
        slot.shard.unload(gone)
        for append in slot.appends:
            append.timeout.cancel()
            _fail(append.reply, gone)
        slot.lock.clear()

    async def stop(self) -> None:
        """Stop coordinating all partitions, and wait until their loading has ended."""
        loading = [slot.loading for slot in self._slots.values() if slot.loading is not None]
        for partition in list(self._slots):
            self.resign(partition)
        await asyncio.gather(*loading, return_exceptions=True)

    def partitions(self) -> Sequence[int]:
        """Return the partitions that this broker coordinates: loading, loaded, or failed to load."""
        return list(self._slots)

    # --- operations ---

    def write(
        self, partition: int, key: str, operation: Operation[S, T], *, shared: bool = False
    ) -> MaybeAwaitable[T]:
        """Run an operation on the shard of `partition`, append its records, and return its response.

        `operation` is called with the shard when the earlier operations on `key` are complete, and returns a
        `Result`. If `shared` is True, `operation` does not wait for earlier operations that are also shared.
        If `operation` has to wait, or its records are not committed at once, return an awaitable of the
        response.

        Raises:
            KafkaError: NOT_COORDINATOR, this broker does not serve the partition;
                COORDINATOR_LOAD_IN_PROGRESS, its loading has not ended; the operation's own errors; for a
                failed append, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or the log's own error.
        """
        slot = self._slots.get(partition)
        if slot is None or slot.state is not _State.ACTIVE:
            raise _inactive(slot)
        if not slot.lock.keys or slot.lock.is_free(key, shared):
            return self._run(partition, slot, key, shared, operation)
        reply: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def run() -> None:
            try:
                if self._slots.get(partition) is not slot:
                    raise KafkaError(ErrorCode.NOT_COORDINATOR)
                answer = self._run(partition, slot, key, shared, operation, reply)
                if answer is not reply:
                    _resolve(reply, answer)
            except Exception as error:
                _fail(reply, error)

        slot.lock.wait(key, shared, run)
        return reply

    def write_unattended(self, partition: int, key: str, operation: Operation[S, Any]) -> None:
        """Start an operation that no request waits for, for example one of a timer, and return at once.

        If the operation fails, log the failure. If this broker does not serve the partition, do nothing.
        """
        slot = self._slots.get(partition)
        if slot is None or slot.state is not _State.ACTIVE:
            return
        try:
            reply = self.write(partition, key, operation)
        except KafkaError as error:
            self._complain(partition, key, error)
            return
        if is_awaitable(reply):

            def check(done: asyncio.Future[Any]) -> None:
                if not done.cancelled() and (error := done.exception()) is not None:
                    self._complain(partition, key, error)

            asyncio.ensure_future(reply).add_done_callback(check)

    def end_transaction(
        self, partition: int, producer: ProducerIdentity, marker: EndTransaction
    ) -> MaybeAwaitable[None]:
        """Append the marker that ends a producer's transaction in `partition`, and replay it.

        Return None if the marker is committed at once; if not, an awaitable that completes when it is.

        Raises:
            KafkaError: NOT_COORDINATOR, this broker does not serve the partition;
                COORDINATOR_LOAD_IN_PROGRESS, its loading has not ended; INVALID_PRODUCER_EPOCH, a newer
                producer has fenced this one; TRANSACTION_COORDINATOR_FENCED, a newer coordinator has fenced
                the marker's sender; for a failed append, COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR or the
                log's own error.
        """
        end: Result[None] = Result(producer=producer, marker=marker)
        # The marker concerns all keys that the producer has written: only the order of the log counts.
        return self.write(partition, f"producer {producer.producer_id}", lambda _: end, shared=True)

    def read(self, partition: int, operation: Callable[[S], T]) -> T:
        """Return the result of `operation`, which is called with the partition's shard and only reads it.

        The operation sees only committed state, and never waits.

        Raises:
            KafkaError: NOT_COORDINATOR or COORDINATOR_LOAD_IN_PROGRESS, or the operation's own errors.
        """
        slot = self._slots.get(partition)
        if slot is None or slot.state is not _State.ACTIVE:
            raise _inactive(slot)
        return operation(slot.shard)

    def active_shards(self) -> Iterator[tuple[int, S]]:
        """Yield (partition, shard) for each loaded shard."""
        for partition, slot in list(self._slots.items()):
            if slot.state is _State.ACTIVE:
                yield partition, slot.shard

    def is_loading(self) -> bool:
        """Whether any shard is still loading."""
        return any(slot.state is _State.LOADING for slot in self._slots.values())

    # --- inside ---

    def _complain(self, partition: int, key: str, error: BaseException) -> None:
        """Log a failed operation, at most once a minute for each partition and error code.

        Without this limit, a partition that accepts no appends would cause a line for each operation.
        """
        code = error.code if isinstance(error, KafkaError) else type(error)
        self._warnings.warn(
            (partition, code), "%s-%d: an operation on %r failed: %s", self._name, partition, key, error
        )

    def _new_shard(self, partition: int, slot: _Slot[S]) -> S:
        def write(key: str, operation: Operation[S, Any]) -> None:
            if self._slots.get(partition) is slot:  # else the shard was unloaded
                self.write_unattended(partition, key, operation)

        def max_bytes() -> int:
            try:
                return self._log.max_bytes(partition)
            except KafkaError as error:
                raise _coordinator_error(error) from error

        def log_end() -> Offset:
            try:
                return self._log.bounds(partition, slot.epoch)[1]
            except KafkaError as error:
                raise _coordinator_error(error) from error

        return self._make_shard(
            ShardContext(partition, self._clock, slot.timers, lambda: slot.epoch, max_bytes, write, log_end)
        )

    async def _load(self, partition: int, slot: _Slot[S], start: Offset, end: Offset) -> None:
        loop = asyncio.get_running_loop()
        began = None
        try:
            await resolve(self._log.committed(partition, end, slot.epoch))
            async with self._load_turn:
                began = loop.time()
                count = await load(self._log, partition, slot.shard, start, end, self._extends)
        except Exception as error:
            self._load_failed(partition, slot, error, 0.0 if began is None else loop.time() - began)
            return
        finally:
            slot.loading = None
        logger.info("%s: loaded partition %d, %d records", self._name, partition, count)
        self._activate(slot)

    def _load_failed(self, partition: int, slot: _Slot[S], error: Exception, seconds: float = 0.0) -> None:
        """Handle an error of a loading, which has taken this number of seconds."""
        slot.state = _State.FAILED
        if isinstance(error, KafkaError) and error.code == ErrorCode.KAFKA_STORAGE_ERROR:
            self._warnings.warn(
                (partition, error.code),
                "%s: partition %d cannot be loaded now, and is tried again: %s",
                self._name,
                partition,
                error.message,
            )
            pause_ms = min(max(_LOAD_AGAIN_MS, round(seconds * 1000 * _PAUSE_FACTOR)), _MAX_LOAD_AGAIN_MS)
            slot.timers.set("load", pause_ms, lambda: self.elect(partition, slot.epoch))
        elif not isinstance(error, KafkaError):
            logger.error("%s: partition %d cannot be loaded", self._name, partition, exc_info=error)
        elif error.code not in _NOT_LED:
            logger.error("%s: partition %d cannot be loaded: %s", self._name, partition, error.message)

    def _activate(self, slot: _Slot[S]) -> None:
        slot.state = _State.ACTIVE
        slot.shard.loaded()

    def _run(
        self,
        partition: int,
        slot: _Slot[S],
        key: str,
        shared: bool,
        operation: Operation[S, T],
        reply: asyncio.Future[T] | None = None,
    ) -> MaybeAwaitable[T]:
        """Run an operation and append its records, as `write` does.

        Return the response if the records are committed at once. If not, return a future of the response:
        `reply`, or a new one if `reply` is None. `slot` has the shard and the lock of `partition`.
        """
        result = operation(slot.shard)
        records = result.records
        if not records and result.marker is None:
            return _answer(result, None)
        try:
            now = self._clock.now_ms()
            batch = self._batch(result, slot.epoch, now)
            committed = self._log.append(partition, batch, slot.epoch, now)
        except KafkaError as error:
            return _answer(result, _coordinator_error(error))
        if committed is None and not slot.appends:
            if result.producer is None:
                # `_replay` and `_answer`, without the calls
                replay = slot.shard.replay
                for record in records:
                    replay(record)
            else:
                _replay(slot.shard, result)
            if result.afterwards is not None:
                asyncio.get_running_loop().call_soon(result.afterwards)
            return result.then(None) if result.then is not None else result.response  # type: ignore[return-value]
        append = _Append(key, shared, result, reply)
        slot.appends.append(append)
        slot.lock.acquire(key, shared)
        late = KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the append was not committed in time")
        loop = asyncio.get_running_loop()
        append.timeout = loop.call_later(self._write_timeout, _fail, append.reply, late)
        if committed is None:
            append.is_settled = True  # so are those before it: `_on_committed` is about to run for them
        else:
            task = asyncio.ensure_future(committed)
            task.add_done_callback(partial(self._on_committed, partition, slot, append))
        return append.reply

    def _on_committed(
        self, partition: int, slot: _Slot[S], append: _Append, outcome: asyncio.Future[None]
    ) -> None:
        failure = asyncio.CancelledError() if outcome.cancelled() else outcome.exception()
        append.error = None if failure is None else _coordinator_error(failure)
        append.is_settled = True
        if self._slots.get(partition) is not slot:
            return
        while slot.appends and slot.appends[0].is_settled:
            self._finish(slot, slot.appends.popleft())

    def _finish(self, slot: _Slot[S], append: _Append) -> None:
        append.timeout.cancel()
        try:
            if append.error is None:
                _replay(slot.shard, append.result)
            _resolve(append.reply, _answer(append.result, append.error))
        except Exception as error:
            _fail(append.reply, error)
        afterwards = append.result.afterwards
        if append.error is None and afterwards is not None:
            # After the callbacks that are there already: they send the response.
            append.reply.add_done_callback(lambda _: afterwards())
        slot.lock.release(append.key, append.shared)

    def _batch(self, result: Result[Any], epoch: LeaderEpoch, now: int) -> bytes:
        producer = result.producer or _NO_PRODUCER
        if result.marker is not None:
            return encode_end_transaction(
                result.marker, producer_id=producer.producer_id, producer_epoch=producer.epoch, timestamp=now
            )
        return encode_batch(
            [Record(*record.encode(), now) for record in result.records],
            leader_epoch=epoch,
            compression=self._compression,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            transactional=result.producer is not None,
        )


def _inactive(slot: _Slot[Any] | None) -> KafkaError:
    return KafkaError(ErrorCode.NOT_COORDINATOR if slot is None else slot.state.value)


def _replay(shard: Shard, result: Result[Any]) -> None:
    producer = result.producer
    if producer is None:
        for record in result.records:
            shard.replay(record)
    elif result.marker is not None:
        shard.end_transaction(producer.producer_id, result.marker.commit)
    else:
        for record in result.records:
            shard.replay_pending(producer.producer_id, record)


#: another broker leads the partition, or will: the image will show it
_NOT_LED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH)

#: errors of an append, as the coordinator's clients get them
_APPEND_ERRORS = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.FENCED_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.UNKNOWN_LEADER_EPOCH: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
}


def _coordinator_error(error: BaseException) -> KafkaError:
    if not isinstance(error, KafkaError):
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error))
    return KafkaError(_APPEND_ERRORS.get(error.code, error.code), error.message)


def _answer(result: Result[T], error: KafkaError | None) -> MaybeAwaitable[T]:
    if result.then is not None:
        return result.then(error)
    if error is not None:
        raise error
    return result.response  # type: ignore[return-value]


def _resolve(reply: asyncio.Future[T], answer: MaybeAwaitable[T]) -> None:
    """Set the result of `reply`, now or when `answer` completes, unless `reply` was cancelled."""
    if is_awaitable(answer):
        asyncio.ensure_future(answer).add_done_callback(partial(_follow, reply))
    elif not reply.done():
        reply.set_result(answer)


def _follow(reply: asyncio.Future[T], done: asyncio.Future[T]) -> None:
    if reply.done():
        return
    if done.cancelled():
        reply.cancel()
    elif (error := done.exception()) is not None:
        reply.set_exception(error)
    else:
        reply.set_result(done.result())


def _fail(reply: asyncio.Future[Any], error: Exception) -> None:
    if not reply.done():
        reply.set_exception(error)
