"""The mark of a replica that lacks records which it had acknowledged.

The mark is the file `barnabas-incomplete` in the folder of the replica's partition. `log repair` and `log
discard` create it, if the broker belongs to a cluster. A broker's start also creates it, if the replica's
folder is missing. While the file exists, the broker registers the replica as incomplete. The controller
counts such a replica as in sync only after it has fetched all of the leader's log. A replica with the mark is
emptied before it fetches, because its remaining log may have holes. Apache Kafka ignores the file.
"""

from __future__ import annotations

import json
import zlib
from typing import NamedTuple

from barnabas.base.environment.filesystem import FileSystem, replace_file
from barnabas.base.types import ZERO_TOPIC_ID, TopicId
from barnabas.broker.storage.damage import read_small_file

FILE_NAME = "barnabas-incomplete"


class Mark(NamedTuple):
    """The mark of a replica that lacks records which it had acknowledged.

    It is the content of the file `barnabas-incomplete` in the partition's folder.
    """

    #: what happened to the replica, for people
    reason: str
    #: whether the replica was emptied since it got the mark: all its records were fetched after that
    is_emptied: bool = False
    #: ids of the missing log directories, if its records can be in one of them
    directories: tuple[str, ...] = ()
    #: id of the replica's topic, 16 bytes; empty if the writer did not know it
    topic_id: TopicId = b""

    def is_of(self, topic_id: TopicId | None) -> bool:
        """Whether this can be the mark of a replica of this topic; None means that its id is not known.

        A mark can be written while its topic is deleted, and another topic of the same name gets the folder.
        """
        return not self.topic_id or topic_id in (None, ZERO_TOPIC_ID, self.topic_id)


def encode_mark(mark: Mark) -> bytes:
    """Return the content of a `barnabas-incomplete` file."""
    content: dict[str, object] = {"version": 0, "reason": mark.reason, "emptied": mark.is_emptied}
    if mark.directories:
        content["directories"] = mark.directories
    if mark.topic_id:
        content["topic_id"] = mark.topic_id.hex()
    return json.dumps({**content, "checksum": _checksum(content)}).encode()


def _checksum(content: dict[str, object]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True).encode())


def decode_mark(content: bytes) -> Mark:
    """Return the mark in a `barnabas-incomplete` file. For damaged content, return a mark that says so."""
    try:
        found = json.loads(content)
        checksum = found.pop("checksum", None)  # 0.2.0 wrote none, and no topic id
        if checksum != _checksum(found) and (checksum is not None or "topic_id" in found):
            raise ValueError("another checksum")
        reason, is_emptied = str(found["reason"]), found["emptied"] is True
        directories = tuple(map(str, found.get("directories", ())))
        topic_id = bytes.fromhex(found.get("topic_id", ""))
        if len(topic_id) not in (0, 16):
            raise ValueError("not a topic id")
        return Mark(reason, is_emptied, directories, topic_id)
    except (ValueError, KeyError, TypeError, AttributeError):
        return Mark("its mark is damaged")


def read_mark(fs: FileSystem, folder: str) -> Mark | None:
    """Return the mark of the replica in a partition's folder; None if there is none.

    Raises:
        OSError: the disk failed.
    """
    try:
        return decode_mark(read_small_file(fs, f"{folder}/{FILE_NAME}"))
    except FileNotFoundError:
        return None
    except ValueError:
        return decode_mark(b"")


def write_mark(fs: FileSystem, folder: str, mark: Mark) -> None:
    """Write the mark to a partition's folder, durably. Raises OSError."""
    replace_file(fs, f"{folder}/{FILE_NAME}", encode_mark(mark))


def remove_mark(fs: FileSystem, folder: str) -> None:
    """Remove the mark from a partition's folder, durably, if there is one. Raises OSError."""
    try:
        fs.remove(f"{folder}/{FILE_NAME}")
    except FileNotFoundError:
        return
    fs.sync_directory(folder)
