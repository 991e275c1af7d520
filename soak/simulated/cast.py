"""The clients of a run: the current client of each slot, and its replacement when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from barnabas.base.environment.clock import Clock
from soak.simulated.client import Client
from soak.simulated.plan import Slot
from soak.simulated.stage import MemoryRecorder, Stage

_PATIENCE = 90.0


class Cast:
    """Keeps a client in each slot while `open` is true."""

    def __init__(self, stage: Stage, clock: Clock, slots: Iterable[Slot]) -> None:
        self._stage = stage
        self._clock = clock
        self.slots = {slot.name: slot for slot in slots}
        #: who has each slot now
        self.clients: dict[str, Client] = {}
        #: all lives so far; some are zombies
        self.lives: list[Client] = []
        self._is_open = dict.fromkeys(self.slots, True)
        self._count: dict[str, int] = {}
        self._recorder = MemoryRecorder(stage, name="cast")

    def start(self) -> None:
        for name in self.slots:
            self.engage(name)

    def engage(self, name: str) -> None:
        """Start a new client in this slot. The previous one can continue as a zombie."""
        life = self._count[name] = self._count.get(name, 0) + 1
        client = self.slots[name].make(self._stage, life, self._clock)
        self.clients[name] = client
        self.lives.append(client)
        client.finished.add_done_callback(lambda _: self._finished(name, client))
        client.start()
        client.stopping = not self._is_open[name]

    def kill(self, name: str, *, silently: bool) -> None:
        """Kill a client permanently. Its slot stays empty until `engage`."""
        client = self.clients[name]
        self._stage.trace.note(f"{client.name} killed {silently}")
        client.is_replaced = True
        client.kill(silently=silently)

    def resume_all(self) -> None:
        for client in self.lives:
            client.resume()
        for name, client in list(self.clients.items()):
            if not client.is_alive and self._is_open[name]:
                self.engage(name)

    async def stop(self, names: Iterable[str]) -> None:
        """Tell clients to finish, and wait for them."""
        names = list(names)
        stopping = [client for client in self.lives if client.task.name in names]
        for name in names:
            self._is_open[name] = False
        for client in stopping:
            client.stopping = True
        deadline = asyncio.get_running_loop().time() + _PATIENCE
        for client in stopping:
            while client.is_alive and asyncio.get_running_loop().time() < deadline:
                await asyncio.sleep(0.1)
            if client.is_alive:
                self._stage.complain("stuck-client", f"{client.name} does not come to an end")
                client.kill(silently=False)

    def _finished(self, name: str, client: Client) -> None:
        self._recorder.note("stopped", target=client.name)
        if client.is_replaced or self.clients[name] is not client or not self._is_open[name]:
            return
        asyncio.get_running_loop().call_later(0.3, self._follow, name, client)

    def _follow(self, name: str, client: Client) -> None:
        if self.clients[name] is client and self._is_open[name]:
            self.engage(name)
