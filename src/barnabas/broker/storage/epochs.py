"""The start offset of each leader epoch (KIP-101), and the file that stores these offsets.

`leader-epoch-checkpoint` is text. It has a line "0" (the version), a line with the number of epochs, and
for each epoch a line "epoch start-offset". From line to line, the epoch and the start offset ascend. Each
line has a checksum (`barnabas.broker.storage.checked_lines`).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import NamedTuple

from barnabas.base.types import NO_LEADER_EPOCH, UNKNOWN_OFFSET
from barnabas.broker.storage import checked_lines

FILE_NAME = "leader-epoch-checkpoint"


class EpochEntry(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """The leader epochs of one log, in memory. `changed` is True while the checkpoint file is outdated."""

    __slots__ = ("changed", "entries", "latest")

    def __init__(self, entries: list[EpochEntry] | None = None) -> None:
        self.entries = entries or []
        #: the epoch of the last entry; -1 if there is none
        self.latest = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
        self.changed = False

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that leader epoch `epoch` begins at `start_offset`, and make it the latest epoch.

        Epochs and start offsets ascend. So first remove each entry whose epoch is at least `epoch`, or whose
        start offset is at least `start_offset`. If `epoch` is negative or already the latest, do nothing.
        """
        if epoch < 0 or epoch == self.latest:
            return
        while self.entries and (
            self.entries[-1].epoch >= epoch or self.entries[-1].start_offset >= start_offset
        ):
            self.entries.pop()
        self.entries.append(EpochEntry(epoch, start_offset))
        self.latest = epoch
        self.changed = True

    def end_offset(self, epoch: int, log_end_offset: int) -> tuple[int, int]:
        """Return the largest known epoch that is at most `epoch`, and its end offset (KIP-101, KIP-279).

        An OffsetForLeaderEpoch response has these two values. An epoch ends where the next known epoch
        begins, and the latest epoch ends at `log_end_offset`. There are two special cases:

        - If `epoch` is before all known epochs, return `epoch` and the start offset of the first known epoch.
        - If `epoch` is negative or after all known epochs, or if no epoch is known, return (-1, -1).
        """
        if epoch < 0 or not self.entries or epoch > self.latest:
            return NO_LEADER_EPOCH, UNKNOWN_OFFSET
        if epoch == self.latest:
            return epoch, log_end_offset
        index = bisect_right(self.entries, epoch, key=lambda entry: entry.epoch)
        if index == 0:  # older than all known epochs: the log has none of its records
            return epoch, self.entries[0].start_offset
        return self.entries[index - 1].epoch, self.entries[index].start_offset

    def contains(self, epoch: int, end_offset: int, log_end_offset: int) -> bool:
        """Whether the log has all records of another log, which ends in leader epoch `epoch` at `end_offset`.

        Two logs that have a record of the same leader epoch at the same offset are equal up to there. So this
        log needs records of `epoch` up to `end_offset`. `log_end_offset` is the end of this log.

        Return False if `epoch` is before all known epochs. Records of it may have been here, but they may
        also have been others.
        """
        if not self.entries or epoch < self.entries[0].epoch:
            return False
        known, end = self.end_offset(epoch, log_end_offset)
        return known == epoch and end >= end_offset

    def epoch_at(self, offset: int) -> int:
        """Return the leader epoch of the record at `offset`; -1 if it is unknown."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.start_offset)
        return self.entries[index - 1].epoch if index else NO_LEADER_EPOCH

    def truncate_from_end(self, end_offset: int) -> None:
        """Remove the epochs that begin at or after `end_offset`, the new end of the log."""
        while self.entries and self.entries[-1].start_offset >= end_offset:
            self.entries.pop()
            self.latest = self.entries[-1].epoch if self.entries else NO_LEADER_EPOCH
            self.changed = True

    def truncate_from_start(self, start_offset: int) -> None:
        """Remove the epochs that end at or before `start_offset`, the new start of the log.

        The epoch of the record at `start_offset` begins there from now on.
        """
        index = bisect_right(self.entries, start_offset, key=lambda entry: entry.start_offset)
        if index and (index > 1 or self.entries[0].start_offset < start_offset):
            self.entries[:index] = [EpochEntry(self.entries[index - 1].epoch, start_offset)]
            self.changed = True

    def encode(self) -> bytes:
        """Return the content of `leader-epoch-checkpoint`."""
        return checked_lines.encode(f"{epoch} {offset}" for epoch, offset in self.entries)

    @classmethod
    def decode(cls, content: bytes) -> LeaderEpochs:
        """Parse the content of `leader-epoch-checkpoint`, written by Barnabas or Kafka.

        Raises:
            ValueError: the content is damaged.
        """
        lines, damage = checked_lines.decode(content)
        if damage is not None:
            raise ValueError(damage)
        entries: list[EpochEntry] = []
        for line in lines:
            epoch, offset = map(int, line.split())
            if epoch < 0 or offset < 0 or (entries and not (entries[-1].epoch < epoch)):
                raise ValueError(f"epoch {epoch} from offset {offset} on cannot be")
            entries.append(EpochEntry(epoch, offset))
        return cls(entries)
