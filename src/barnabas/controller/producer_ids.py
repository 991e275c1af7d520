"""Producer ids, handed out in blocks so that a broker asks the controller once for many producers."""

from __future__ import annotations

from barnabas.controller.controller_election import ControllerElection
from barnabas.metadata import znodes
from barnabas.metadata.store import Create, MetadataStore, Set
from barnabas.types import BrokerId

#: ids in a block, as in Apache Kafka
BLOCK_SIZE = 1000


class ProducerIdControl:
    """The part of the controller that grants blocks of producer ids."""

    def __init__(self, store: MetadataStore, election: ControllerElection) -> None:
        self._store = store
        self._election = election

    async def allocate(self, broker_id: BrokerId) -> range:
        """A block of producer ids for a broker, that no one else gets, now or after a restart.

        Raises:
            KafkaError: as `ControllerElection.write`.
        """
        async with self._election.deciding():
            node = await self._store.exists(znodes.PRODUCER_ID_BLOCK)
            first = znodes.decode_producer_id_block(node.data)[1] + 1 if node else 0
            block = range(first, first + BLOCK_SIZE)
            data = znodes.encode_producer_id_block(broker_id, block[0], block[-1])
            if node is None:
                await self._election.write([Create(znodes.PRODUCER_ID_BLOCK, data)])
            else:
                await self._election.write([Set(znodes.PRODUCER_ID_BLOCK, data, node.version)])
            return block
