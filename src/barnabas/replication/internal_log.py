"""An internal topic's partitions as a coordinator uses them."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.answers import Answer
from barnabas.errors import KafkaError
from barnabas.replication.manager import ReplicaManager
from barnabas.replication.partition import ACKS_ALL
from barnabas.replication.produce import Acknowledgement, Appended
from barnabas.storage import Origin
from barnabas.types import Buffer, LeaderEpoch, Offset


class ReplicatedLog:
    """`barnabas.coordinator.InternalLog` over the replicas of one topic on this broker."""

    def __init__(self, topic: str, replicas: ReplicaManager) -> None:
        self._topic = topic
        self._replicas = replicas

    def append(self, partition: int, batch: bytes, epoch: LeaderEpoch) -> Answer[None]:
        replica = self._replicas.find(self._topic, partition)
        replica.check_leader(epoch)
        info = replica.append(batch, ACKS_ALL, Origin.COORDINATOR)
        if replica.is_acknowledged(info.last_offset, ACKS_ALL):
            return None
        return self._committed(Appended(replica, info.last_offset, _refuse))

    def bounds(self, partition: int) -> tuple[Offset, Offset]:
        log = self._replicas.find(self._topic, partition).log
        return log.log_start_offset, log.high_watermark

    def read(self, partition: int, offset: Offset, max_bytes: int) -> Sequence[Buffer]:
        log = self._replicas.find(self._topic, partition).log
        return [
            bytes(chunk) for chunk in log.read(offset, max_bytes, log.high_watermark, min_one=True).chunks
        ]

    async def _committed(self, appended: Appended) -> None:
        # However long it takes: what is appended may be committed yet, and counts from then on. It is the
        # coordinator that tells its client when that takes too long.
        await Acknowledgement([appended], ACKS_ALL, True).wait(None).future


def _refuse(error: KafkaError) -> None:
    raise error
