"""The machine of a served metadata store, in virtual time: its server, its disk, and what happens to them."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from barnabas.broker.metadata.server.server import TICK, Listener, StoreServer
from simulation.blocking import VirtualThreads
from simulation.environment import simulated_environment
from simulation.faulty_disk import FaultyDisk
from simulation.network import Host, SimulatedNetwork
from simulation.virtual_time import Killed, VirtualProcess

#: port of the server
PORT = 2181
_FOLDERS = ("/data",)
#: seconds
_FOREVER = 1e9
#: kinds of disk operations that `StoreMachine.light_fuse` counts
_CHANGES = frozenset({"create", "write", "truncate", "rename", "remove", "sync"})


class StoreMachine:
    """A machine that serves a store to the machines of a network. The disk stays when the process ends.

    Args:
        network: network of the machine.
        name: the machine's host name.
        seed: determines all random numbers.
    """

    def __init__(self, network: SimulatedNetwork, name: str, seed: object) -> None:
        self.name = name
        self.disk = FaultyDisk()
        self.disk.refuse = self._refuse
        self._network = network
        self._seed = seed
        self._chance = Random(f"{seed} {name}")
        self._numbers = itertools.count(1)
        self._process: VirtualProcess | None = None
        self._host: Host | None = None
        self._threads: VirtualThreads | None = None
        #: changes of the disk until the process is killed; whether the power goes, too
        self._fuse: tuple[int, bool] | None = None

    @property
    def is_up(self) -> bool:
        return self._process is not None

    def start(self) -> None:
        """Begin to start the server, if no process runs."""
        if self._process is not None:
            return
        number = next(self._numbers)
        self._host = host = self._network.host(self.name)
        self._threads = VirtualThreads(Random(f"{self._seed} threads {number}"))
        environment = simulated_environment(
            f"{self._seed} {self.name} {number}",
            filesystem=self.disk,
            blocking=self._threads,
            network=host,
        )

        async def listen(protocol_factory: Callable[[], asyncio.Protocol]) -> Listener:
            listening = host.bind("", PORT)
            await listening.accept(protocol_factory, backlog=100)
            return listening

        self._process = VirtualProcess(f"{self.name} {number}")
        self._process.run(_serve(StoreServer.open(environment, _FOLDERS, listen, tick=TICK)))

    def kill(self, *, power: bool) -> None:
        """Kill the process now. With `power`, the machine also loses all data that was not fsynced."""
        self._fuse = None
        process, self._process = self._process, None
        if process is None:
            return
        assert self._host is not None
        if process.is_paused:
            self._network.resume(self.name)
        process.kill()
        if power:
            self._network.power_off(self.name)
            self.disk.crash(self._chance)
            self.disk.refuse = self._refuse
            self._network.power_on(self.name)
        else:
            self._host.kill()
            self.disk.process_ended()

    def light_fuse(self, changes: int, *, power: bool) -> None:
        """Kill the process in the middle of a change of its disk, after `changes` more changes."""
        self._fuse = changes, power

    def pause(self) -> None:
        """Stop the process as SIGSTOP does, until `resume`."""
        if self._process is not None and not self._process.is_paused:
            self._process.pause()
            self._network.pause(self.name)

    def resume(self) -> None:
        """End a pause."""
        if self._process is not None and self._process.is_paused:
            self._network.resume(self.name)
            self._process.resume()

    def slow_down(self, seconds: float) -> None:
        """Set the mean delay of each operation of the disk."""
        if self._threads is not None:
            self._threads.mean_delay = seconds

    def _refuse(self, operation: str, path: str) -> Exception | None:
        process = VirtualProcess.current()
        if process is not None and not process.is_alive:
            raise Killed
        if self._fuse is not None and operation in _CHANGES:
            changes, power = self._fuse
            self._fuse = changes - 1, power
            if not changes:
                self.kill(power=power)
                raise Killed
        return None


async def _serve(opening: Coroutine[Any, Any, StoreServer]) -> None:
    """Open the server, and keep it until the process ends."""
    _server = await opening
    await asyncio.sleep(_FOREVER)
