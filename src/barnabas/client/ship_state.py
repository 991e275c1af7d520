"""A shipper's progress, kept on this machine and in the topic itself.

Every shipped record has the header `barnabas.ship`: its number within its source, the position behind its
lines, and the host, as ``<number>@<position>@<host>``. So the topic is the truth: exactly its records have
been shipped. The state file saves reading the whole topic, and remembers the position of a record that
retention has removed. Its folder has the topic's id as its name: a topic deleted and created again is a new
one.
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
    """The last record of a source that the topic is known to hold; `number` 0 and offset -1 when none is."""

    number: int
    position: Position | None
    partition: int
    offset: int
    time_ms: int


def encode_header(number: int, position: Position, host: str) -> bytes:
    return f"{number}@{position.encode()}@{host}".encode()


def decode_header(value: bytes) -> tuple[int, Position, str]:
    """Raises ValueError when it is not a shipper's header."""
    number, position, host = value.decode().split("@", 2)
    return int(number), Position.decode(position), host


class SourceState:
    """The state file of one source, locked for as long as it is open.

    JSON with `source`, `number`, `position`, `partition`, `offset`, `time_ms` as `Shipped` has them, and
    `clean`: whether everything sent had been acknowledged.

    Raises:
        ClientError: another process ships this source to this topic, or the file cannot be written.
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
        self._load()

    def save(self, shipped: Shipped, *, clean: bool) -> None:
        """Write durably: to a temporary file that then takes the name."""
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
        except FileNotFoundError:
            return
        except ValueError:
            raise ClientError(
                f"{self._path} is damaged: remove its directory, and the topic is read for how far it came"
            ) from None
        position = document["position"]
        self.clean = document["clean"]
        self.shipped = Shipped(
            document["number"],
            Position.decode(position) if position is not None else None,
            document["partition"],
            document["offset"],
            document["time_ms"],
        )
