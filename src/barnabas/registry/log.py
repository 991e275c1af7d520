"""Writes records to the topic that stores a registry's state, and replays them.

Several registries may share one topic. None may decide on stale state, because two registries could then
assign the same id. So only the registry with the newest producer epoch can write. All registries of a topic
share one transactional id.

To write, a registry first initializes a producer. From then on, the brokers reject the records of other
registries, and abort their transactions. Then the registry reads the topic to its end, decides, and writes
the records in one transaction. If another registry has initialized a producer meanwhile, the broker rejects
the commit. The registry then reads, decides and writes again. A registry may pause at any point for any time,
because there is no lease that could expire.

docs/adr/0004 compares this with Confluent's election of a leader.
"""

from __future__ import annotations

import asyncio
import logging
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import confluent_kafka

from barnabas.base.errors import BarnabasError
from barnabas.base.types import TopicPartition
from barnabas.client import Admin
from barnabas.client.errors import translate
from barnabas.client.settings import create_client, librdkafka_settings
from barnabas.registry.decision import Decision
from barnabas.registry.errors import Code, RegistryError
from barnabas.registry.records import Record

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Discards librdkafka's messages. It logs a fatal error whenever another registry takes the right to write,
#: which is normal here. librdkafka also raises that error.
_UNHEARD = logging.getLogger("barnabas.registry.librdkafka")
_UNHEARD.addHandler(logging.NullHandler())
_UNHEARD.propagate = False

_POLL_S = 0.2
#: seconds for one call to the brokers
_CALL_S = 10.0
#: seconds for a write, with all retries
_WRITE_S = 30.0
#: records that are replayed in one turn of the event loop
_SLICE_MESSAGES, _SLICE_BYTES = 200, 256 << 10
_FIRST_BACKOFF_S = 0.01
_MAX_BACKOFF_S = 1.0


class SchemasLog:
    """The topic of one registry. One event loop creates this object, calls its methods, and replays records.

    Args:
        replay: receives the key and the value of each record, in order.
        admin: a connected client, because a new one may need seconds for its first response. `close` also
            closes this client.
    """

    def __init__(
        self,
        bootstrap_servers: str,
        topic: str,
        replay: Callable[[bytes | None, bytes | None], None],
        admin: Admin,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._servers = bootstrap_servers
        self._topic = topic
        self._replay = replay
        self._position = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._turn = asyncio.Lock()
        self._closing = threading.Event()
        self._reader: threading.Thread | None = None
        self._consumer: Any = None
        self._admin = admin
        # librdkafka's transactional calls block; one thread makes them, one after another.
        self._writer = ThreadPoolExecutor(1, "registry-writer")
        self._producer: Any = None
        #: whether this registry, as far as it knows, has the right to write and has read the whole topic
        self._owner = False

    async def open(self) -> None:
        """Replay all present records of the topic, and then return.

        From then on until `close`, new records are replayed when they are written. While no broker answers,
        this call waits without a time limit. Raises SettingError if librdkafka rejects a setting.
        """
        self._consumer = create_client(
            confluent_kafka.Consumer,
            self._servers,
            {
                "group.id": "schema-registry",  # librdkafka requires a group id; no group is joined
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "fetch.wait.max.ms": 100,
            },
        )
        self._consumer.assign([confluent_kafka.TopicPartition(self._topic, 0, 0)])
        self._reader = threading.Thread(target=self._read, name="registry-reader", daemon=True)
        self._reader.start()
        await self.read_to_end()

    async def close(self) -> None:
        """Stop replaying and writing. First wait for a commit that is in progress."""
        self._closing.set()
        await self._in_writer(self._drop_producer)
        self._writer.shutdown()
        if self._reader is not None:
            await asyncio.to_thread(self._reader.join)
        self._admin.close()

    async def write(self, decide: Callable[[], Decision[T]]) -> T:
        """Write the records of a decision in one transaction. Return its `answer` when they are replayed.

        `decide` makes the decision from the state. It may be called several times, each time on a newer
        state, and its exceptions are raised here. If the decision has no records, nothing is written.

        Raises:
            RegistryError: OPERATION_TIMEOUT, the brokers do not store the records in time;
                SCHEMA_TOO_LARGE, a record is larger than the topic allows; or an error of `decide`.
        """
        async with self._turn:
            if not self._owner:
                decision = self._unchanged(decide)
                if decision is not None:
                    return decision.answer
            try:
                async with asyncio.timeout(_WRITE_S):
                    return await self._write(decide)
            except TimeoutError:
                raise RegistryError(
                    Code.OPERATION_TIMEOUT, f"the brokers at {self._servers} did not take the write in time"
                ) from None

    async def read_to_end(self) -> None:
        """Wait until all records that the topic has at the time of the call are replayed.

        While no broker answers, log warnings and retry, without a time limit.
        """
        while True:
            try:
                end = await asyncio.to_thread(self._end)
                break
            except BarnabasError as error:
                logger.warning("cannot look up the end of %s: %s", self._topic, error)
                await asyncio.sleep(_MAX_BACKOFF_S)
        await self._reached(end)

    def _end(self) -> int:
        # Not by the consumer: it serves one thread at a time, which polls it all the time.
        partition = TopicPartition(self._topic, 0)
        return self._admin.offsets([partition], "latest")[partition]

    # --- writing ---

    @staticmethod
    def _unchanged(decide: Callable[[], Decision[T]]) -> Decision[T] | None:
        """Call `decide`, and return its decision if the decision has no records to write.

        Return None if it has records, or if `decide` raises RegistryError.
        """
        try:
            decision = decide()
        except RegistryError:
            return None  # a newer state may allow it
        return None if decision.records else decision

    async def _write(self, decide: Callable[[], Decision[T]]) -> T:
        backoff = _FIRST_BACKOFF_S
        while True:
            try:
                if not self._owner:
                    await self._in_writer(self._take_over)
                    await self.read_to_end()
                    self._owner = True
                decision = decide()
                if decision.records:
                    self._owner = False  # as long as it is not known how this ends, whatever may come between
                    await self._reached(await self._in_writer(self._commit, decision.records) + 1)
                    self._owner = True
                return decision.answer
            except confluent_kafka.KafkaException as error:
                # Whatever happened, the remedy is the same: take the right again, which aborts a transaction.
                logger.info("retrying a write to %s: %s", self._topic, translate(error))
                self._owner = False
            await asyncio.sleep(random.uniform(0, backoff))
            backoff = min(backoff * 2, _MAX_BACKOFF_S)

    def _take_over(self) -> None:
        self._drop_producer()
        self._producer = confluent_kafka.Producer(
            librdkafka_settings(
                self._servers,
                {
                    "transactional.id": f"schema-registry-{self._topic}",
                    "transaction.timeout.ms": int(_CALL_S * 1000),
                    "linger.ms": 0,
                },
            ),
            logger=_UNHEARD,
        )
        self._producer.init_transactions(_CALL_S)

    def _commit(self, records: Sequence[Record]) -> int:
        """Write the records in one transaction, and return the offset of the last one.

        Raises:
            RegistryError: SCHEMA_TOO_LARGE, a record is larger than the topic allows.
            confluent_kafka.KafkaException: the transaction failed, for example because another registry
                writes.
        """
        offsets: list[int] = []

        def stored(error: Any, message: Any) -> None:
            if error is None:
                offsets.append(message.offset())

        self._producer.begin_transaction()
        for record in records:
            key, value = record.encode()
            try:
                self._producer.produce(self._topic, partition=0, key=key, value=value, on_delivery=stored)
            except confluent_kafka.KafkaException as error:
                if error.args[0].code() == confluent_kafka.KafkaError.MSG_SIZE_TOO_LARGE:
                    raise RegistryError(
                        Code.SCHEMA_TOO_LARGE, f"the schema is too large: {len(value or b'')} bytes"
                    ) from None
                raise
        self._producer.flush(_CALL_S)
        self._producer.commit_transaction(_CALL_S)
        return max(offsets)

    def _drop_producer(self) -> None:
        if self._producer is not None:
            self._producer.purge()
            self._producer = None

    async def _in_writer(self, function: Callable[..., T], *arguments: Any) -> T:
        return await self._loop.run_in_executor(self._writer, function, *arguments)

    # --- replaying ---

    def _read(self) -> None:
        """Run in a thread: pass the consumer's messages to the event loop."""
        while not self._closing.is_set():
            first = self._consumer.poll(_POLL_S)
            if first is not None:
                for slice_ in _slices([first, *self._consumer.consume(1000, 0)]):
                    # One slice at a time: requests are answered between two slices.
                    taken = threading.Event()
                    self._loop.call_soon_threadsafe(self._take, slice_, taken)
                    while not taken.wait(_POLL_S) and not self._closing.is_set():
                        pass
        self._consumer.close()

    def _take(self, messages: list[Any], taken: threading.Event) -> None:
        taken.set()
        for message in messages:
            error = message.error()
            if error is None:
                self._replay(message.key(), message.value())
                self._position = message.offset() + 1
            elif error.code() == confluent_kafka.KafkaError._PARTITION_EOF:
                self._position = max(self._position, message.offset())
            else:
                logger.warning("reading %s: %s", self._topic, translate(error))
        for offset, future in self._waiting:
            if offset <= self._position and not future.done():
                future.set_result(None)
        self._waiting = [waiting for waiting in self._waiting if not waiting[1].done()]

    async def _reached(self, offset: int) -> None:
        if offset > self._position:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append((offset, future))
            await future


def _slices(messages: list[Any]) -> Iterator[list[Any]]:
    """Yield the messages in order, in slices that are replayed in a few milliseconds each."""
    taken: list[Any] = []
    size = 0
    for message in messages:
        taken.append(message)
        size += len(message.value() or b"")
        if len(taken) >= _SLICE_MESSAGES or size >= _SLICE_BYTES:
            yield taken
            taken, size = [], 0
    if taken:
        yield taken
