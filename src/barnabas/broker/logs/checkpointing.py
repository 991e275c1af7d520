"""Writes the checkpoints of log directories (`LogDirectory`), in each directory one at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from barnabas.base.environment.blocking import Pool
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import Offset
from barnabas.broker.logs.directory import LogDirectory
from barnabas.broker.logs.offset_checkpoint import CheckpointWrite
from barnabas.broker.storage import PartitionLog
from barnabas.broker.storage.checkpoints import LOG_STARTS, RECOVERY_POINTS

log = logger_of(__name__)


class CheckpointWriter:
    """Writes checkpoints in threads. Only the event loop may use it.

    A write that has begun continues if its caller is cancelled: two writers would corrupt the file.

    Args:
        disk: threads in which the files are written.
    """

    def __init__(self, disk: Pool) -> None:
        self._disk = disk
        #: running writes that several requests may await
        self._shared_writes: dict[asyncio.Future[None], None] = {}
        #: writes of log start offsets that have not begun yet
        self._log_start_writes: dict[LogDirectory, asyncio.Future[None]] = {}
        #: writes of lowered recovery points that have not begun yet
        self._recovery_point_writes: dict[LogDirectory, asyncio.Future[None]] = {}
        #: directories whose checkpoints name logs that have moved to other brokers
        self._outdated: dict[LogDirectory, None] = {}
        self._writing_outdated: asyncio.Task[None] | None = None

    async def write(self, directory: LogDirectory, of: Callable[[LogDirectory], CheckpointWrite]) -> None:
        """Write one kind of checkpoint in `directory`, in a thread.

        The broker writes only one checkpoint of a directory at a time. A write that has begun continues if
        the caller is cancelled. `of` is a method of `LogDirectory`, such as
        `LogDirectory.recovery_point_checkpoint`.

        Raises:
            OSError: the disk failed.
        """
        await asyncio.shield(self.share(self._write_alone(of, directory)))

    async def try_to_write(
        self, directory: LogDirectory, of: Callable[[LogDirectory], CheckpointWrite]
    ) -> bool:
        """Write one kind of checkpoint of a directory. If this fails, log the error and return False.

        `of` is a method of `LogDirectory`, such as `LogDirectory.recovery_point_checkpoint`.
        """
        try:
            await self.write(directory, of)
        except OSError as error:
            directory.env.handle_error("a checkpoint", error)
        except Exception:
            log.exception("a checkpoint in %s could not be written", directory.path)
        else:
            return True
        return False

    async def write_all(self, directory: LogDirectory) -> None:
        """Write all checkpoints of a directory.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, one could not be written.
        """
        if not await self.try_to_write_all(directory):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"the checkpoints in {directory.path} could not be written"
            )

    async def try_to_write_all(self, directory: LogDirectory) -> bool:
        """Write all checkpoints of a directory. If one fails, log the error, stop, and return False."""
        for of in (
            LogDirectory.log_start_checkpoint,
            LogDirectory.high_watermark_checkpoint,  # before a recovery point that would seem to bear it out
            LogDirectory.recovery_point_checkpoint,
            LogDirectory.cleaned_checkpoint,
        ):
            if directory.failure is not None or not await self.try_to_write(directory, of):
                return False
        return True

    async def write_opened(self, directory: LogDirectory, *, is_outdated: bool) -> None:
        """After logs of a directory were opened, write the checkpoints that mislead a later start.

        Write all checkpoints if `is_outdated`, or if some logs ended before their log start offsets. Log
        errors.
        """
        if is_outdated or directory.checkpoints.has_stale_offsets:
            await self.try_to_write_all(directory)

    def write_all_soon(self, directory: LogDirectory) -> None:
        """Write all checkpoints of a directory in a task. Log errors."""
        self._outdated[directory] = None
        if self._writing_outdated is None:
            self._writing_outdated = start_task(self._write_outdated(), "checkpoints")

    async def store_cleaned(self, directory: LogDirectory) -> None:
        """Write the cleaned checkpoint of `directory`, if it has changed.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the disk failed.
        """
        try:
            await self.write(directory, LogDirectory.cleaned_checkpoint)
        except OSError as error:
            raise directory.env.handle_error("a checkpoint", error) from error

    async def store_log_starts(
        self, directory: LogDirectory, planned: Sequence[tuple[PartitionLog, Offset]]
    ) -> None:
        """Write the start offsets of the logs in `directory` to the directory's log start checkpoint.

        `planned` has logs with the start offsets that they will have. For these logs, write the planned start
        offset instead of the present one, if it is higher. The caller advances the logs after this call.

        Calls that wait for the same directory share one write.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, or its disk failed.
        """
        directory.checkpoints.planned_starts.append(planned)
        try:
            writing = self._log_start_writes.get(directory)
            if writing is None:
                writing = self.share(self._store_log_starts(directory))
                self._log_start_writes[directory] = writing
            await asyncio.shield(writing)
        finally:
            directory.checkpoints.planned_starts.remove(planned)

    async def lower_start(self, directory: LogDirectory, opened: PartitionLog, end: Offset) -> None:
        """Before a truncation of `opened` to `end`, write its log start offset as `end` at most.

        A higher start offset on disk would later mean that all records before it were deleted, and not only
        removed by the truncation. Truncate the log directly after this call: the next write has the start
        offset of the log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, or its disk failed.
        """
        checkpoints = directory.checkpoints
        if not checkpoints.may_start_after(opened.topic_partition, end):
            return
        checkpoints.planned_ends.append((opened, end))
        try:
            await self.store_log_starts(directory, ())
        finally:
            checkpoints.planned_ends.remove((opened, end))
            if end < opened.log_start_offset:  # the truncation may not follow
                opened.stored_start = end if opened.stored_start is None else min(end, opened.stored_start)

    async def store_recovery_points(self, directory: LogDirectory) -> None:
        """Write the recovery points of the logs in `directory`, and its cleaned checkpoint.

        Calls that wait for the same directory share one write.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR, the directory is offline, or its disk failed.
        """
        writing = self._recovery_point_writes.get(directory)
        if writing is None:
            writing = self.share(self._store_recovery_points(directory))
            self._recovery_point_writes[directory] = writing
        await asyncio.shield(writing)

    def share(self, write: Coroutine[Any, Any, None]) -> asyncio.Future[None]:
        """Start a write that several requests can await. It completes even if all of them are cancelled."""
        writing = asyncio.ensure_future(write)
        self._shared_writes[writing] = None
        writing.add_done_callback(self._written)
        return writing

    async def stop(self) -> None:
        """Wait until no checkpoint is being written."""
        if self._writing_outdated is not None:
            await self._writing_outdated
        while self._shared_writes:
            await asyncio.wait(list(self._shared_writes))

    async def _write_alone(
        self, of: Callable[[LogDirectory], CheckpointWrite], directory: LogDirectory
    ) -> None:
        async with directory.checkpoints.lock:
            await self._run(of(directory))

    async def _run(self, checkpoint: CheckpointWrite) -> None:
        for _ in checkpoint.prepare():
            await asyncio.sleep(0)
        if checkpoint.is_needed:
            await self._disk.run(checkpoint.run)

    async def _store_log_starts(self, directory: LogDirectory) -> None:
        if directory.failure is not None:
            del self._log_start_writes[directory]
            raise directory.env.offline_error()
        async with directory.checkpoints.lock:
            del self._log_start_writes[directory]  # later requests need another write
            try:
                await self._run(directory.log_start_checkpoint())
            except OSError as error:
                raise directory.env.handle_error(LOG_STARTS, error) from error

    async def _store_recovery_points(self, directory: LogDirectory) -> None:
        if directory.failure is not None:
            del self._recovery_point_writes[directory]
            raise directory.env.offline_error()
        async with directory.checkpoints.lock:
            del self._recovery_point_writes[directory]  # later requests need another write
            try:
                await self._run(directory.recovery_point_checkpoint())
                await self._run(directory.cleaned_checkpoint())
            except OSError as error:
                raise directory.env.handle_error(RECOVERY_POINTS, error) from error

    async def _write_outdated(self) -> None:
        try:
            while self._outdated:
                directory = next(iter(self._outdated))
                del self._outdated[directory]
                await self.try_to_write_all(directory)
        finally:
            self._writing_outdated = None

    def _written(self, writing: asyncio.Future[None]) -> None:
        del self._shared_writes[writing]
        if not writing.cancelled():
            writing.exception()  # those that await the write raise it; perhaps none is left
