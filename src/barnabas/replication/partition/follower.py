"""What a follower of a partition does: it serves what does not need the leader, and refuses the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode, KafkaError
from barnabas.types import LeaderEpoch, Offset

if TYPE_CHECKING:
    from barnabas.storage import PartitionLog


class Follower:
    """This broker's replica while another broker, or none, leads the partition.

    Its log stands still: brokers do not fetch from each other yet.
    """

    __slots__ = ("_log",)

    def __init__(self, log: PartitionLog) -> None:
        self._log = log

    def refusal(self) -> KafkaError:
        """The answer to a request that only the leader may serve."""
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def end_offset_for_epoch(self, epoch: LeaderEpoch) -> tuple[LeaderEpoch, Offset]:
        """As `Partition.end_offset_for_epoch`."""
        return self._log.end_offset_for_epoch(epoch)
