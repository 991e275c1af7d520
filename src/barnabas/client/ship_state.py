"""The progress of a shipper, in the topic itself and on this machine.

Every shipped record has the header `barnabas.ship`: ``<number>@<position>@<host>``. The number counts the
records of the source. The position is the place in the file after the record's lines. So the topic shows
exactly what has been shipped. With the state file, the shipper need not read the whole topic. It also knows
where to continue if retention has removed the last record from the topic. The name of the state files' folder
has the topic's id, because a topic that is deleted and created again is a new topic.
"""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from barnabas.base.system import locks
from barnabas.client.errors import ClientError
from barnabas.client.tail import Position

HEADER = "barnabas.ship"


@dataclass(frozen=True, slots=True)
class Shipped:
    """The last record of a source in the topic. If there is none, `number` is 0.

    Attributes:
        number: number of the record in its source, from 1.
        position: position in the file after the record's last line. Before the first record, the position at
            which to begin; None for the oldest rotated file.
        partition: partition of the topic to which the source's records go.
        offset: offset of the record. If there is no record, or the source's partition has changed because
            partitions were added to the topic: the end offset of `partition` when the shipper started, minus
            one.
        time_ms: timestamp of the record, in milliseconds since 1970.
    """

    number: int
    position: Position | None
    partition: int
    offset: int
    time_ms: int


def encode_header(number: int, position: Position, host: str) -> bytes:
    return f"{number}@{position.encode()}@{host}".encode()


def decode_header(value: bytes) -> tuple[int, Position, str]:
    """Decode the header `barnabas.ship` to number, position and host. Raises ValueError for other bytes."""
    number, position, host = value.decode().split("@", 2)
    return int(number), Position.decode(position), host


class SourceState:
    """The state file of one source, with a lock from the constructor until `close`.

    The file is JSON. It has the fields of `Shipped`, and `clean`: whether all sent records were acknowledged.

    Raises:
        ClientError: another process ships this source to this topic, or the state file is damaged.
        OSError: the lock file beside the state file cannot be created, or the state file cannot be read.
    """

    def __init__(self, directory: Path, source: str) -> None:
        self.source = source
        digest = hashlib.sha256(source.encode()).hexdigest()[:16]
        self._path = directory / f"{digest}.json"
        self._lock: IO[bytes] = (directory / f"{digest}.lock").open("ab")
        try:
            locks.lock(self._lock.fileno())
        except BlockingIOError:
            self._lock.close()
            raise ClientError(
                f"{source} is being shipped to this topic by another process: stop that one first"
            ) from None
        self.clean = True
        self.shipped: Shipped | None = None
        try:
            self._load()
        except BaseException:
            self.close()
            raise

    def save(self, shipped: Shipped, *, clean: bool) -> None:
        """Write the file durably: write a temporary file, and rename it.

        `clean` is whether all sent records are acknowledged.
        """
        self.shipped, self.clean = shipped, clean
        document = {
            "source": self.source,
            "number": shipped.number,
            "position": shipped.position.encode() if shipped.position is not None else None,
            "partition": shipped.partition,
            "offset": shipped.offset,
            "time_ms": shipped.time_ms,
            "clean": clean,
        }
        temporary = self._path.with_suffix(".tmp")
        with temporary.open("w") as file:
            json.dump(document, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self._path)

    def close(self) -> None:
        self._lock.close()

    def _load(self) -> None:
        try:
            document: dict[str, Any] = json.loads(self._path.read_text())
            position = document["position"]
            self.clean = document["clean"]
            self.shipped = Shipped(
                document["number"],
                Position.decode(position) if position is not None else None,
                document["partition"],
                document["offset"],
                document["time_ms"],
            )
        except FileNotFoundError:
            return
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ClientError(
                f"{self._path} is damaged: remove its directory; `barnabas ship` then reads its position "
                "from the topic"
            ) from None
