"""The single operations of a metadata store in terms of `multi`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from barnabas.broker.metadata.store import ANY_VERSION, Create, Delete, Operation, Set


class SingleOperations(ABC):
    """Mixed into a store whose transactions cost no more than single operations."""

    @abstractmethod
    async def multi(self, operations: Sequence[Operation]) -> list[int]: ...

    async def create(self, path: str, data: bytes = b"", *, ephemeral: bool = False) -> None:
        await self.multi([Create(path, data, ephemeral)])

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> int:
        return (await self.multi([Set(path, data, version)]))[0]

    async def delete(self, path: str, version: int = ANY_VERSION) -> None:
        await self.multi([Delete(path, version)])
