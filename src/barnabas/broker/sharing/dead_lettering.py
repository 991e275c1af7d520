"""Writes the dead letters of one share partition (KIP-1191), one for each record that the group gives up.

A dead letter is a record in the group's dead-letter queue, which is a topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol, TypeAlias

from barnabas.base.errors import KafkaError
from barnabas.base.tasks import start_task
from barnabas.base.text import logger_of
from barnabas.base.types import Offset
from barnabas.broker.coordinator.backoff import backoff_ms
from barnabas.broker.sharing.counts import LetterCounts
from barnabas.broker.sharing.in_flight import DeadLetters, InFlight

log = logger_of(__name__)

#: raises KafkaError if another leader has taken over the share partition
CheckLeader: TypeAlias = Callable[[], Awaitable[None]]


class LetterWriter(Protocol):
    """Writes the dead letters of one share partition to the dead-letter queue of its group."""

    async def write(self, due: Sequence[DeadLetters]) -> Sequence[tuple[Offset, Offset]]:
        """Write dead letters for records in `due`, and wait until the dead-letter queue has them.

        One call may finish only some of the records. The caller then calls `write` again with the others.

        Args:
            due: records that the group has given up, in the order of their offsets. The share coordinator has
                stored their state ARCHIVING.

        Returns:
            First and last offset of each span of records that the caller can archive. Each of the records has
            its dead letter now, or the log does not have the record any more.

        Raises:
            KafkaError: the dead-letter queue does not exist, or does not accept the dead letters; its leader
                does not respond; the log of the records cannot be read; or another broker leads the share
                partition now.
        """


class DeadLettering:
    """Writes the dead letters of one share partition. The event loop owns this object.

    One call of the writer is in progress at a time, and the next one begins when `InFlight.due_letters` has
    records again. After a call that fails, the next one follows after a back-off; the number of attempts has
    no limit. If the group has no dead-letter queue any more, the records are archived without dead letters.

    Args:
        name: the share partition, for logs.
        flight: the records in flight.
        writer: writes the dead letters.
        counts: called without arguments when dead letters are due; returns the counts of the group's dead
            letters.
        has_queue: returns whether the group has a dead-letter queue now.
        on_change: called after each archived batch: `flight` has changes to store, and may have room for more
            records.
        on_idle: called when no dead letters are due any more.
        on_defect: called with the error if the code that handles written dead letters fails. It must end the
            share partition: the queue may have dead letters of records that `flight` still has as due.
    """

    def __init__(
        self,
        name: str,
        flight: InFlight,
        writer: LetterWriter,
        counts: Callable[[], LetterCounts],
        has_queue: Callable[[], bool],
        on_change: Callable[[], object],
        on_idle: Callable[[], object],
        on_defect: Callable[[Exception], object],
    ) -> None:
        self._name = name
        self._flight = flight
        self._writer = writer
        self._counts = counts
        self._has_queue = has_queue
        self._on_change = on_change
        self._on_idle = on_idle
        self._on_defect = on_defect
        self._has_ended = False
        self._last_reason: str | None = None
        #: the running work; None while no dead letters are due
        self.task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task that writes, if dead letters are due and the task does not run yet."""
        if (
            self.task is None
            and not self._has_ended
            and self._flight.has_letters
            and self._flight.due_letters()
        ):
            self.task = start_task(self._run(), f"dead letters of {self._name}")

    def end(self) -> None:
        """Write no more dead letters, because the share partition ends.

        Cancel a write in progress. The next leader then does not know whether the dead letters of this write
        exist.
        """
        self._has_ended = True
        if self.task is not None:
            self.task.cancel()

    async def _run(self) -> None:
        try:
            await self._write_all()
        except Exception as error:
            self.task = None
            self._on_defect(error)
            raise
        self.task = None
        self._on_idle()

    async def _write_all(self) -> None:
        failures = 0
        while due := self._flight.due_letters():
            done = await self._attempt(due)
            if not done:
                failures += 1
                await asyncio.sleep(backoff_ms(failures) / 1000)
                continue
            failures = 0
            self._last_reason = None
            for first, last in done:
                self._flight.letters_written(first, last)
            self._on_change()

    async def _attempt(self, due: Sequence[DeadLetters]) -> Sequence[tuple[Offset, Offset]]:
        if not self._has_queue():
            log.warning(
                "%s has no dead-letter queue any more: its records are archived without one", self._name
            )
            return [(letters.first, letters.last) for letters in due]
        self._counts().requests += 1
        try:
            done = await self._writer.write(due)
        except Exception as error:  # whatever it is: the records wait, as many as the group may lock
            self._counts().failed_requests += 1
            self._report(error)
            return ()
        self._counts().records += sum(last - first + 1 for first, last in done)
        return done

    def _report(self, error: Exception) -> None:
        """Log that `error` delays the dead letters. Do not log the same text twice in a row."""
        reason = str(error)
        if reason != self._last_reason:
            traceback = None if isinstance(error, KafkaError) else error
            log.warning("dead letters of %s wait: %s", self._name, reason, exc_info=traceback)
        self._last_reason = reason
