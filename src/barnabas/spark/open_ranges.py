"""Tracks which offset ranges a task still has to read, and reports lost records.

A range ends at an offset, not after a number of records, because compaction and transaction markers leave
gaps. Even the last offset of a range may be in a gap. So a range is read completely when the task has a batch
that ends at or after the end of the range.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator

from barnabas.base.errors import BarnabasError
from barnabas.base.types import Offset, TopicPartition
from barnabas.spark.ranges import OffsetRange

_logger = logging.getLogger(__name__)


class DataLossError(BarnabasError):
    """Records that a query should read do not exist any more, and failOnDataLoss is true."""


def gone(tp: TopicPartition, start: Offset, end: Offset) -> str:
    """Describe the lost records of `tp`, from `start` up to, but without, `end`."""
    return f"{tp}: offsets {start} to {end - 1} are gone"


def report_data_loss(what: str, *, fail: bool) -> None:
    """Report lost records, which `what` describes. Raise DataLossError if `fail` is true.

    If `fail` is false, log a warning.
    """
    if fail:
        raise DataLossError(
            f"{what}; to continue with the remaining records, set the option failOnDataLoss=false"
        )
    _logger.warning("%s; continuing, because failOnDataLoss=false", what)


class OpenRanges:
    """The offset ranges that a task has not read to their end yet, at most one for each partition.

    Iteration yields the partitions of these ranges, in the order in which to request records. If records are
    lost, methods raise DataLossError if `fail_on_data_loss` is true, and log a warning if it is false.
    """

    def __init__(self, ranges: list[OffsetRange], fail_on_data_loss: bool) -> None:
        self._fail_on_data_loss = fail_on_data_loss
        self._ends = {TopicPartition(each.topic, each.partition): each.end for each in ranges}
        self._positions = {TopicPartition(each.topic, each.partition): each.start for each in ranges}

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(list(self._positions))

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._positions

    def __str__(self) -> str:
        return ", ".join(map(str, self._positions))

    def position(self, tp: TopicPartition) -> Offset:
        """Return the offset to read next."""
        return self._positions[tp]

    def end(self, tp: TopicPartition) -> Offset:
        """Return the offset at which the range ends."""
        return self._ends[tp]

    def advance(self, tp: TopicPartition, position: Offset) -> None:
        """Set `position` as the offset of `tp` to read next.

        If the range ends at or before `position`, close the range. If not, move it behind the other ranges.
        """
        del self._positions[tp]
        if position < self._ends[tp]:
            self._positions[tp] = position

    def end_early(self, tp: TopicPartition) -> None:
        """Close the range of `tp`, whose log ends before the range, and report the loss.

        Raises DataLossError if failOnDataLoss is true.
        """
        self._skip_to(tp, self._ends[tp])

    def go_on_at(self, tp: TopicPartition, earliest: Offset) -> None:
        """Continue to read `tp` at its log start offset `earliest`, and report the records before it as lost.

        If `earliest` is not between the next offset to read and the end of the range, close the range.
        Raises DataLossError if failOnDataLoss is true.
        """
        is_ahead = self._positions[tp] < earliest < self._ends[tp]
        self._skip_to(tp, earliest if is_ahead else self._ends[tp])

    def close_gone(self, tp: TopicPartition) -> None:
        """Close the range of `tp`, which does not exist any more, and report the loss.

        Raises DataLossError if failOnDataLoss is true.
        """
        report_data_loss(f"{tp} is gone", fail=self._fail_on_data_loss)
        del self._positions[tp]

    def _skip_to(self, tp: TopicPartition, left: Offset) -> None:
        report_data_loss(gone(tp, self._positions[tp], left), fail=self._fail_on_data_loss)
        self.advance(tp, left)
