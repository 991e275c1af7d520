"""Assigns unused producer ids (KIP-98) from blocks that the controller allocates."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.types import ProducerId


class ProducerIds:
    """The unused producer ids of one broker.

    Args:
        allocate: requests a block of ids from the controller, and returns it. It must raise KafkaError if it
            gets none.
    """

    def __init__(self, allocate: Callable[[], Awaitable[range]]) -> None:
        self._allocate = allocate
        self._block: Iterator[ProducerId] = iter(())
        self._turn = asyncio.Lock()

    async def next(self) -> ProducerId:
        """Return an unused producer id. If the present block of ids is used up, first request a new block.

        Raises:
            KafkaError: COORDINATOR_LOAD_IN_PROGRESS, the controller allocates no block now. Clients retry
                after this error.
        """
        async with self._turn:
            for producer_id in self._block:
                return producer_id
            try:
                self._block = iter(await self._allocate())
            except KafkaError as error:
                raise KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, error.message) from error
            return next(self._block)
