"""Keeps a consumer in its group while its caller processes a record.

librdkafka removes a consumer from its group if no thread polls it for `max.poll.interval.ms`, and a rebalance
waits for the next poll. A caller polls only between two records, so a slow record would delay the next poll.
Therefore a thread polls while the caller does not. The thread keeps at most `_KEPT` records. Then it pauses
the partitions.

A rebalance drops the buffered records of removed partitions at once. It waits until the caller has processed
its current record, but at most two thirds of `max.poll.interval.ms`. The coordinator waits for the member for
the whole `max.poll.interval.ms`.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import partial

import confluent_kafka

from barnabas.base.types import TopicPartition
from barnabas.client.asking import ask

logger = logging.getLogger(__name__)

#: longest time between two polls of the thread, in seconds, and least number of polls in max.poll.interval.ms
_INTERVAL = 1.0
_POLLS = 10
#: records that the thread keeps before it pauses the partitions; after a pause librdkafka fetches again
_KEPT = 10
_MAX_WAIT_SHARE = 2 / 3


class KeepAlive:
    """Polls a subscribed consumer when its caller does not.

    Args:
        consumer: consumer of librdkafka. Each poll must be within `reading`.
        max_poll_interval: `max.poll.interval.ms` of the consumer, in seconds.
        drop: called with the partitions that a rebalance has removed. It must drop the caller's buffered
            records of these partitions. The lock `changed` is held during the call.

    Attributes:
        changed: lock for the caller's current record and the caller's buffered records.
    """

    def __init__(
        self,
        consumer: confluent_kafka.Consumer,
        max_poll_interval: float,
        drop: Callable[[Collection[TopicPartition]], None],
    ) -> None:
        self.changed = threading.Condition()
        self._consumer = consumer
        self._drop = drop
        self._max_wait = max_poll_interval * _MAX_WAIT_SHARE
        self._interval = min(_INTERVAL, max_poll_interval / _POLLS)
        # Reentrant: Ctrl-C may interrupt `reading` after it has acquired this lock, but before its `with`
        # block begins. Then nothing releases the lock, and the same thread must still be able to call `stop`.
        self._polling = threading.RLock()
        self._polled_at = time.monotonic()
        self._in_hand: TopicPartition | None = None
        #: for each partition, the next offset to commit, until it is passed to librdkafka
        self._done: dict[TopicPartition, int] = {}
        self._is_commit_wanted = False
        self._commit_failure: confluent_kafka.KafkaException | None = None
        #: messages and events that have arrived since the caller's last poll
        self._kept: list[confluent_kafka.Message] = []
        self._failure: confluent_kafka.KafkaException | None = None
        self._is_paused = False
        self._stopped = threading.Event()
        self._thread = threading.Thread(
            target=_run,
            args=(weakref.ref(self), self._stopped, self._interval),
            name="barnabas consumer keep-alive",
            daemon=True,
        )

    def start(self, topics: list[str]) -> None:
        """Subscribe the consumer to `topics`, and start the thread that polls."""
        self._consumer.subscribe(topics, on_revoke=self._revoked, on_lost=self._lost)
        if not self._thread.is_alive():
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread that polls. After that, no rebalance waits for the caller's record.

        The offsets of processed records are still passed to librdkafka.
        """
        self._stopped.set()
        with self.changed:
            self._in_hand = None
            self.changed.notify_all()
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            self._thread.join()
        with self._polling:
            self._settle()

    # --- the caller's side

    @contextmanager
    def reading(self) -> Iterator[list[confluent_kafka.Message]]:
        """Return a context in which only the caller polls. `with` gives the list of arrived messages.

        The caller adds the messages of its poll to the list, and removes those that it takes. A rebalance
        removes the messages of partitions that move to other members.

        Raises:
            confluent_kafka.KafkaException: an error that occurred since the last poll.
        """
        with self._polling:
            self._settle()
            failure, self._failure = self._failure, None
            if failure is not None:
                raise failure
            if self._is_paused:
                self._is_paused = False
                self._consumer.resume(self._consumer.assignment())
            try:
                yield self._kept
            finally:
                self._polled_at = time.monotonic()

    def begin_record(self, partition: TopicPartition) -> None:
        """Let a rebalance wait, because the caller now processes a record of `partition`.

        The caller must hold the lock `changed`.
        """
        self._in_hand = partition

    def finish_record(self, partition: TopicPartition, next_offset: int) -> None:
        """Include the record before `next_offset` in the next commit: the caller has processed it.

        A rebalance that waits for this record continues.

        The next poll passes the offset to librdkafka. This method does not pass it, because a rebalance
        callback may run at the same time.
        """
        with self.changed:
            self._in_hand = None
            self._done[partition] = next_offset
            self.changed.notify_all()

    def commit(self) -> None:
        """Commit the offsets of processed records, and wait for the response.

        If a rebalance waits for the caller's record, the rebalance commits the offsets, and this call waits
        for it.

        Raises:
            confluent_kafka.KafkaException: the commit was rejected.
        """
        with self.changed:
            self._is_commit_wanted = True
            self.changed.notify_all()
        with self._polling:
            self._settle()
            failure, self._commit_failure = self._commit_failure, None
        if failure is not None:
            raise failure

    # --- the thread's side

    def keep_alive(self) -> None:
        """Poll once, unless the caller has polled recently, or polls now.

        The thread of this object calls it once a second, or more often.
        """
        if time.monotonic() - self._polled_at < self._interval or not self._polling.acquire(blocking=False):
            return
        try:
            self._settle()
            if len(self._kept) >= _KEPT:
                self._is_paused = True
                self._consumer.pause(self._consumer.assignment())  # again: others may be assigned by now
            message = self._consumer.poll(0)
            if message is not None:
                self._kept.append(message)
        except confluent_kafka.KafkaException as error:
            self._failure = error
        except RuntimeError:  # it was closed meanwhile
            self._stopped.set()
        finally:
            self._polling.release()

    # --- rebalances, in the thread of whoever polls

    def _revoked(self, _consumer: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        gone = self._forget(partitions)
        with self.changed:
            # Only the thread has to wait: a caller that polls has nothing in hand.
            is_done = threading.current_thread() is not self._thread or self.changed.wait_for(
                lambda: self._in_hand not in gone, self._max_wait
            )
            if not is_done:
                logger.warning(
                    "%s is given up while a record of it is worked on for more than %.0f s:"
                    " another member of the group gets the record again",
                    self._in_hand,
                    self._max_wait,
                )

        self._settle()

    def _settle(self) -> None:
        """Store the offsets of processed records in librdkafka. If a call of `commit` waits, commit them."""
        with self.changed:
            done, self._done = self._done, {}
            is_commit_wanted, self._is_commit_wanted = self._is_commit_wanted, False
        for partition, offset in done.items():
            try:
                self._consumer.store_offsets(offsets=[confluent_kafka.TopicPartition(*partition, offset)])
            except confluent_kafka.KafkaException as error:
                # Another member reads the partition by now, and gets the record again.
                logger.warning(
                    "%s: offset %d was processed too late to be committed: %s", partition, offset - 1, error
                )
        if is_commit_wanted:
            try:
                ask(partial(self._consumer.commit, asynchronous=False))
            except confluent_kafka.KafkaException as error:
                self._commit_failure = error

    def _lost(self, _consumer: object, partitions: list[confluent_kafka.TopicPartition]) -> None:
        self._forget(partitions)

    def _forget(self, partitions: list[confluent_kafka.TopicPartition]) -> set[TopicPartition]:
        gone = {TopicPartition(each.topic, each.partition) for each in partitions}
        with self.changed:
            self._drop(gone)
            self._kept[:] = [
                message for message in self._kept if (message.topic(), message.partition()) not in gone
            ]
        return gone


def _run(keeper: weakref.ref[KeepAlive], stopped: threading.Event, interval: float) -> None:
    """Run the thread with a weak reference only: a consumer without `close` can be garbage-collected."""
    while not stopped.wait(interval):
        found = keeper()
        if found is None:
            return
        found.keep_alive()
        del found
