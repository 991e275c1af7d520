"""The client that moves replicas between the log directories of their brokers."""

from __future__ import annotations

import contextlib

from barnabas.base.errors import ErrorCode
from barnabas.broker.interbroker.errors import ChannelError
from barnabas.kafka.protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from soak.simulated.client import Client, Place, is_retriable, name_of
from soak.simulated.stage import FOLDERS, SHRINKING

_BROKER = 4
_SET, _DELETE = 0, 1
_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
#: bytes a second; the slowest moves last until the rate is changed
_RATES = (1000, 10_000, 100_000)

#: possible answers while a disk has failed, a folder is missing, or a replica is created or deleted
_UNTIMELY = frozenset(
    {
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LOG_DIR_NOT_FOUND,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class MoveLogs(Client):
    """Moves replicas between the log directories of a broker (KIP-113), and cancels some moves by moving the
    logs back.

    It changes the rate of the moves, so that many moves last for seconds. At its end, it lifts the limit.
    """

    role = "move-logs"

    async def run(self) -> None:
        while not self.stopping:
            await self.rest()
            with contextlib.suppress(ChannelError):
                broker = self.random.choice(self.stage.broker_ids)
                if self.random.random() < 0.3:
                    await self._set_rate(broker, self.random.choice([*_RATES, None]))
                else:
                    await self._move(broker)
        for broker in self.stage.broker_ids:
            while True:
                with contextlib.suppress(ChannelError):
                    if not await self._set_rate(broker, None):
                        break
                await self.back_off()

    async def _move(self, broker: int) -> None:
        """Move some replicas of a broker, or all of them, to one of its folders."""
        held = await self._held_by(broker)
        if self.random.random() < 0.4:  # deletion and compaction are where a move is most difficult
            held = [place for place in held if place[0] in SHRINKING]
        count = len(held) if self.random.random() < 0.2 else self.random.randint(1, 6)
        topics: dict[str, list[int]] = {}
        for topic, number in self.random.sample(held, min(count, len(held))):
            topics.setdefault(topic, []).append(number)
        moved = [AlterReplicaLogDirTopic(name=name, partitions=numbers) for name, numbers in topics.items()]
        target = AlterReplicaLogDir(path=self.random.choice(FOLDERS), topics=moved)
        response = await self.ask(AlterReplicaLogDirsRequest(dirs=[target]), broker=broker)
        for result in response.results:
            for part in result.partitions:
                self._judge(part.error_code, "AlterReplicaLogDirs")

    async def _held_by(self, broker: int) -> list[Place]:
        response = await self.ask(MetadataRequest(topics=None))
        return sorted(
            (topic.name, part.partition_index)
            for topic in response.topics
            if not topic.error_code and topic.name is not None
            for part in topic.partitions
            if broker in part.replica_nodes
        )

    async def _set_rate(self, broker: int, rate: int | None) -> int:
        """Limit the moves of a broker to `rate` bytes a second; None means no limit. Return the code."""
        config = AlterableConfig(
            name=_RATE, config_operation=_DELETE if rate is None else _SET, value=str(rate or "")
        )
        resource = AlterConfigsResource(resource_type=_BROKER, resource_name=str(broker), configs=[config])
        response = await self.ask_controller(IncrementalAlterConfigsRequest(resources=[resource]))
        code = int(response.responses[0].error_code)
        if code != ErrorCode.INVALID_REQUEST:  # the broker is away
            self._judge(code, "IncrementalAlterConfigs")
        return code

    def _judge(self, code: int, what: str) -> None:
        self.note_code(code, what)
        if code and not is_retriable(code) and code not in _UNTIMELY:
            self.stage.complain("move-refused", f"{self.name}: {what} was answered {name_of(code)}")
