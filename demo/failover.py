"""Kills a broker during the demo, while a client writes and reads all the time and measures the delays."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from confluent_kafka import Producer

from barnabas.base.errors import BarnabasError
from barnabas.client import Admin
from demo.readback import Readback, pulse_value

#: what is written to; its totals are no part of the demo's
TOPIC = "demo.pulse"
_PARTITIONS = 3
_PAUSE_S = 0.05
_PATIENCE_S = 60


class PulseLostError(BarnabasError):
    """A write was rejected or not acknowledged in time, or the reads do not have each
    write once and in order.
    """


@dataclass(frozen=True)
class Failover:
    """The effect of a broker's death on clients that write and read.

    Attributes:
        broker: the id of the killed broker.
        partitions: the number of the demo's partitions that it led.
        longest_wait: the time of the slowest write to any partition, in seconds.
        usual_wait: the median time of all writes, in seconds.
        writes: the number of acknowledged writes; the reads had each of them once and in order.
        longest_read: the longest time from a record's write to its read, in seconds.
        usual_read: the median time from write to read, in seconds.
    """

    broker: int
    partitions: int
    longest_wait: float
    usual_wait: float
    writes: int
    longest_read: float
    usual_read: float


class Pulse:
    """Writes and reads a record at a fixed interval with acks=all, and can kill a leader."""

    def __init__(self, bootstrap: str, kill: Callable[[int], None]) -> None:
        self._bootstrap = bootstrap
        self._kill = kill
        self._waits: list[float] = []
        self._read = Readback(bootstrap, TOPIC, _PARTITIONS)
        self._failures: list[str] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)
        #: the broker that was killed, and how many partitions it led
        self._killed: tuple[int, int] | None = None

    def __enter__(self) -> Self:
        Admin(self._bootstrap).create_topic(TOPIC, partitions=_PARTITIONS)
        self._thread.start()
        self._read.start()
        return self

    def kill_a_leader(self, topic: str) -> None:
        """Kill the broker that leads the first partition of a topic. A second call does nothing."""
        if self._killed is not None:
            return
        admin = Admin(self._bootstrap)
        described = admin.describe_topics(admin.topics())
        leaders = [partition.leader for each in described for partition in each.partitions]
        leader = next(each for each in described if each.name == topic).partitions[0].leader
        if leader is None:
            raise PulseLostError(f"{topic}-0 has no leader to kill")
        self._killed = leader, leaders.count(leader)
        self._kill(leader)

    def result(self) -> Failover:
        """Return the effect of the kill.

        Raises:
            PulseLostError: a write was lost, or no broker was killed.
        """
        self._stopping.set()
        self._thread.join(2 * _PATIENCE_S)
        if self._failures:
            raise PulseLostError(f"writes were not acknowledged: {', '.join(self._failures[:3])}")
        if self._killed is None:
            raise PulseLostError("no broker was killed")
        waits = sorted(self._waits)
        if wrong := self._read.finish(len(waits), _PATIENCE_S):
            raise PulseLostError(f"acknowledged writes were not read back: {wrong}")
        reads = sorted(self._read.waits)
        return Failover(
            *self._killed,
            longest_wait=waits[-1],
            usual_wait=waits[len(waits) // 2],
            writes=len(waits),
            longest_read=reads[-1],
            usual_read=reads[len(reads) // 2],
        )

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopping.set()
        self._read.stop()

    def _beat(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._bootstrap,
                "enable.idempotence": True,
                "message.timeout.ms": _PATIENCE_S * 1000,
                "log_level": 0,
            }
        )
        number = 0
        while not self._stopping.is_set():
            began = time.monotonic()

            def told(error: Any, message: Any, began: float = began) -> None:
                if error is None:
                    self._waits.append(time.monotonic() - began)
                else:
                    self._failures.append(str(error))

            producer.produce(
                TOPIC,
                pulse_value(number // _PARTITIONS, began),
                partition=number % _PARTITIONS,
                on_delivery=told,
            )
            due = began + _PAUSE_S
            while (left := due - time.monotonic()) > 0:
                producer.poll(left)
            number += 1
        if producer.flush(_PATIENCE_S):
            self._failures.append(f"no answer within {_PATIENCE_S} s")
