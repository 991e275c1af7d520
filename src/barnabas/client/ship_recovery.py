"""Finding in the topic itself how far each source has been shipped."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping

from confluent_kafka import Consumer, Message, TopicPartition

from barnabas.client.errors import translate
from barnabas.client.ship_state import HEADER, Shipped, decode_header

_BATCH = 10_000


class TopicReader:
    """Reads what a shipper left in a topic, once, up to what it held at the beginning."""

    def __init__(self, bootstrap_servers: str, topic: str, partitions: int) -> None:
        self._topic = topic
        self._partitions = range(partitions)
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "barnabas-ship",  # never joined: partitions are assigned by hand
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_uncommitted",
                "log_level": 0,
            }
        )

    def watermarks(self) -> dict[int, tuple[int, int]]:
        """Log start offset and high watermark by partition."""
        return {
            partition: self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=10
            )
            for partition in self._partitions
        }

    def last_shipped(
        self,
        host: str,
        sources: Mapping[str, Shipped | None],
        *,
        scan_unknown: bool,
        settle: float = 0.0,
        on_progress: Callable[[int, int], None] | None = None,
    ) -> dict[str, Shipped]:
        """The last record of each source that the topic holds or held.

        Args:
            host: whose sources they are; those of the same name on other hosts are others.
            sources: what the state files say; the topic is read from there on.
            scan_unknown: read the whole topic for sources without a state file.
            settle: how many seconds of silence show that nothing of a killed shipper is still on its way.
            on_progress: called with records read and records to read.
        """
        marks = self.watermarks()
        found = {source: shipped for source, shipped in sources.items() if shipped is not None}
        starts: dict[int, int] = {}
        for source in sources:
            shipped = found.get(source)
            if shipped is not None and shipped.offset < marks.get(shipped.partition, (0, 0))[1]:
                self._start(starts, shipped.partition, shipped.offset + 1)
                continue
            # Either nothing is known, or the topic has lost what was shipped: then it is shipped again.
            if shipped is not None:
                del found[source]
            if shipped is not None or scan_unknown:
                for partition in self._partitions:
                    self._start(starts, partition, marks[partition][0])
        deadline = 0.0
        while True:
            todo = {p: (max(at, marks[p][0]), marks[p][1]) for p, at in starts.items() if at < marks[p][1]}
            for message in self._read(todo, on_progress):
                self._note(message, host, sources, found)
                deadline = 0.0
            starts = {partition: max(at, marks[partition][1]) for partition, at in starts.items()}
            now = time.monotonic()
            deadline = deadline or now + settle
            if now >= deadline:
                return found
            time.sleep(min(0.05, deadline - now))
            marks = self.watermarks()

    def close(self) -> None:
        self._consumer.close()

    def _start(self, starts: dict[int, int], partition: int, offset: int) -> None:
        starts[partition] = min(starts.get(partition, offset), offset)

    def _note(
        self, message: Message, host: str, sources: Mapping[str, object], found: dict[str, Shipped]
    ) -> None:
        key = (message.key() or b"").decode(errors="replace")
        value = dict(message.headers() or ()).get(HEADER)
        if key not in sources or not isinstance(value, bytes):
            return
        try:
            number, position, shipper_host = decode_header(value)
        except ValueError:  # a header of that name that is not a shipper's
            return
        known = found.get(key)
        if shipper_host == host and (known is None or number > known.number):
            time_ms = message.timestamp()[1]
            found[key] = Shipped(number, position, message.partition() or 0, message.offset() or 0, time_ms)

    def _read(
        self, todo: dict[int, tuple[int, int]], on_progress: Callable[[int, int], None] | None
    ) -> Iterator[Message]:
        """Every record of the ranges {partition: (from, to)}."""
        left = {partition: end for partition, (start, end) in todo.items() if start < end}
        if not left:
            return
        total = sum(end - start for start, end in todo.values())
        self._consumer.assign([TopicPartition(self._topic, p, todo[p][0]) for p in left])
        read = 0
        while left:
            for message in self._consumer.consume(_BATCH, timeout=0.2):
                if message.error() is not None:
                    raise translate(message.error())
                partition = message.partition()
                if partition in left:
                    yield message
                    read += 1
            for place in self._consumer.position([TopicPartition(self._topic, p) for p in left]):
                if (
                    place.offset >= left[place.partition]
                ):  # also past control records, which are not delivered
                    del left[place.partition]
            if on_progress is not None:
                on_progress(read, total)
        self._consumer.unassign()
