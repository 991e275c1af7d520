"""Allocates producer ids in blocks, so that a broker sends one request for many producers."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import BrokerId
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.store import Create, DamagedNodeError, MetadataStore, Set

#: ids in a block, as in Apache Kafka
BLOCK_SIZE = 1000
#: the most ids that a controller grants when earlier controllers' grants are unknown
_IDS_OF_AN_EPOCH = 1 << 32


class ProducerIdControl:
    """The part of the controller that allocates blocks of producer ids.

    If two producers had the same id, brokers would drop records of one as duplicates. So the controller never
    allocates an id twice, even if a user deletes the metadata node with the last allocated id.

    Args:
        store: metadata store of the cluster.
        writes: writes to the metadata store while this broker is the controller.
        seen: returns the highest allocated id that this broker has seen; -1 for none.
    """

    def __init__(
        self, store: MetadataStore, writes: ControllerWrites, seen: Callable[[], int] = lambda: -1
    ) -> None:
        self._store = store
        self._writes = writes
        self._seen = seen
        #: the last id that this broker has granted
        self._granted = -1

    async def allocate(self, broker_id: BrokerId) -> range:
        """Allocate `BLOCK_SIZE` producer ids to a broker. No other broker gets them, now or after a restart.

        Raises:
            KafkaError: NOT_CONTROLLER or KAFKA_STORAGE_ERROR, as in `ControllerWrites.write`;
                KAFKA_STORAGE_ERROR also if the node with the last block is damaged.
        """
        async with self._writes.deciding():
            node = await self._store.exists(znodes.PRODUCER_ID_BLOCK)
            last = max(self._seen(), self._granted)
            if node is not None:
                last = max(last, _last_of(node.data))
            first = self._first_of_all() if last < 0 else last + 1
            block = range(first, first + BLOCK_SIZE)
            data = znodes.encode_producer_id_block(broker_id, block[0], block[-1])
            if node is None:
                await self._writes.write([Create(znodes.PRODUCER_ID_BLOCK, data)])
            else:
                await self._writes.write([Set(znodes.PRODUCER_ID_BLOCK, data, node.version)])
            self._granted = block[-1]
            return block

    def _first_of_all(self) -> int:
        """Return the first id to allocate when no allocated id is known.

        No id is known before the first allocation, and after a client of the metadata store has deleted the
        node with the last id.

        - If no other client can use the metadata store, or this is the first controller epoch, return 0.
        - In all other cases, return an id above all ids that controllers of earlier epochs could allocate.
        """
        is_shared = self._store.session_timeout > 0  # else no client could have deleted it
        return self._writes.epoch * _IDS_OF_AN_EPOCH if is_shared and self._writes.epoch > 1 else 0


def _last_of(block: bytes) -> int:
    try:
        return znodes.decoded(znodes.PRODUCER_ID_BLOCK, znodes.decode_producer_id_block, block)[1]
    except DamagedNodeError as error:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
