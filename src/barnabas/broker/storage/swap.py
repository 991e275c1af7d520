"""Replaces segments with a cleaned one, so that a crash at any moment loses nothing.

The names of files show the progress, as in Apache Kafka. The new files are written with the suffix
`.cleaned`, and fsynced. Then they are renamed to `.swap`: a start that finds such files completes the
swap. When those names are durable, the old files become `.deleted`, and the new ones lose their suffix.

If a crash happens during the renames to `.swap`, some files still have the suffix `.cleaned`. The start then
removes the `.cleaned` files. It also removes each `.swap` file whose base offset is at least the lowest base
offset of the `.cleaned` files. The code assumes that renames in one folder become durable in their order.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence

from barnabas.base.environment.filesystem import Entry
from barnabas.base.types import Offset
from barnabas.broker.storage.environment import LogEnvironment
from barnabas.broker.storage.open_files import LogFile
from barnabas.broker.storage.segment import LogSegment

logger = logging.getLogger(__name__)

CLEANED = ".cleaned"
SWAP = ".swap"
_SEGMENT_FILE = re.compile(r"(?P<offset>[0-9]+)\.(?P<kind>log|index|timeindex|txnindex)(?P<suffix>\..+)?")


class Swap:
    """One replacement of segments with a cleaned segment. The log's files own it."""

    __slots__ = ("cleaned", "is_cancelled", "is_decided", "replaced")

    def __init__(self, cleaned: LogSegment, replaced: Sequence[LogSegment]) -> None:
        self.cleaned = cleaned
        self.replaced = replaced
        #: whether the renaming of the old files has begun: the swap can then only be completed
        self.is_decided = False
        #: whether the new files were removed; the folder must be fsynced before the log changes
        self.is_cancelled = False

    def begin(self) -> None:
        """Rename the new files to `.swap`. Once those names are durable, a restart completes the swap."""
        for file in reversed(self.cleaned.all_files()):  # the .log, which decides, last
            _change_suffix(file, CLEANED, SWAP, must_exist=file is self.cleaned.log)

    def finish(self) -> None:
        """Give the new files their final names. The old segments' files must have been renamed before.

        After a failure it can be called again.
        """
        for file in self.cleaned.all_files():  # the .log first: it decides what a restart deletes
            _change_suffix(file, SWAP, "", must_exist=file is self.cleaned.log)

    def cancel(self) -> None:
        """Remove the new files; the old segments stay. After a failure it can be called again."""
        assert not self.is_decided
        for file in reversed(self.cleaned.all_files()):  # the .log last: by it, a restart knows what to undo
            file.remove()
        self.is_cancelled = True


def _change_suffix(file: LogFile, old: str, new: str, *, must_exist: bool) -> None:
    file.rename(file.path.removesuffix(old) + new, must_exist=must_exist)


def complete_swaps(env: LogEnvironment, path: str, entries: Sequence[Entry]) -> bool:
    """Complete or undo interrupted swaps in the folder `path`. Return whether file names have changed.

    The swaps may be Apache Kafka's. If this call is interrupted, the next one continues.

    Raises:
        OSError: the disk failed.
        KafkaError: CORRUPT_MESSAGE, a segment of an interrupted swap is damaged.
    """
    if not any(entry.name.endswith((CLEANED, SWAP)) for entry in entries):
        return False  # the usual case, for each of many logs
    found = [_Found(entry, match) for entry in entries if (match := _SEGMENT_FILE.fullmatch(entry.name))]
    unfinished = [file for file in found if file.suffix == CLEANED]
    swaps = [file for file in found if file.suffix == SWAP]
    if not unfinished and not swaps:
        return False
    floor = min((file.offset for file in unfinished), default=None)
    undone = [file for file in swaps if floor is not None and file.offset >= floor]
    # the .cleaned ones last, as long as they are there the others do not count
    for file in (*undone, *unfinished):
        env.fs.remove(f"{path}/{file.name}")
    env.fs.sync_directory(path)
    swaps = [file for file in swaps if file not in undone]
    for file in [file for file in swaps if file.kind == "log"]:
        segment = LogSegment(
            env.files, path, file.offset, now_ms=env.clock.now_ms(), size=file.size, suffix=SWAP
        )
        end = segment.next_offset()
        segment.close()
        logger.info("%s/%s: completing an interrupted cleaning", path, file.name)
        for old in found:
            if not old.suffix and (file.offset == old.offset or file.offset <= old.offset < end):
                env.fs.remove(f"{path}/{old.name}")
    env.fs.sync_directory(path)
    for file in sorted(swaps, key=lambda file: file.kind != "log"):
        env.fs.rename(f"{path}/{file.name}", f"{path}/{file.name.removesuffix(SWAP)}")
    env.fs.sync_directory(path)
    return True


class _Found:
    """A segment's file that was found by its name."""

    __slots__ = ("kind", "name", "offset", "size", "suffix")

    def __init__(self, entry: Entry, match: re.Match[str]) -> None:
        self.name = entry.name
        self.size = entry.size
        self.offset: Offset = int(match["offset"])
        self.kind = match["kind"]
        self.suffix = match["suffix"] or ""
