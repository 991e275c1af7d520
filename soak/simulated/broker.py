"""The lives of one broker: started, stopped, killed and without power, on one disk."""

from __future__ import annotations

import asyncio
import errno
import itertools
from random import Random

from barnabas.config import BrokerConfig
from barnabas.environment.environment import Environment
from barnabas.errors import BarnabasError
from barnabas.server.broker import Broker
from barnabas.simulation.blocking import VirtualThreads
from barnabas.simulation.clocks import VirtualClock
from barnabas.simulation.faulty_disk import FaultyDisk
from barnabas.simulation.network import Host
from barnabas.simulation.virtual_time import Killed, VirtualProcess
from soak.simulated.stage import BROKER, Stage

_CHANGES = frozenset({"write", "truncate", "sync", "rename", "remove", "remove_tree", "sync_directory"})
#: seconds
_BLOCKING = (0.0005, 0.002, 0.02)


class SimulatedBroker:
    """A supervisor of the broker: while nobody holds it down, it runs, or is started again.

    Attributes:
        broker: the one that serves; None while there is none.
        bad_folder: what lies in it cannot be read or written.
    """

    def __init__(self, stage: Stage, settings: dict[str, str]) -> None:
        self._stage = stage
        self._config = BrokerConfig.from_text(settings)
        self._chance = stage.random("broker's disk")
        self._numbers = itertools.count(1)
        self._process: VirtualProcess | None = None
        self._host: Host | None = None
        self._threads: VirtualThreads | None = None
        self.clock = VirtualClock(asyncio.get_running_loop())
        self.disk = FaultyDisk(self.clock)
        self.disk.refuse = self._refuse
        self.broker: Broker | None = None
        self.bad_folder: str | None = None
        #: as fast as this disk is without faults
        self.usual_delay = self._blocking_seconds = self._chance.choice(_BLOCKING)
        #: changes of the disk until the broker is killed in the middle of one; whether the power goes, too
        self._fuse: tuple[int, bool] | None = None
        #: an fsync has failed, so only a cut of power shows what the disk has
        self.needs_power_cut = False

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    async def start(self) -> bool:
        """Start it; False when it cannot now, or is killed while it starts."""
        if self._process is not None:  # a start that nobody waits for any more
            self._end(power=False)
        number = next(self._numbers)
        process = self._process = VirtualProcess(f"{BROKER} {number}")
        host = self._host = self._stage.network.host(BROKER)
        threads = VirtualThreads(self._stage.random(f"threads {number}"), self._blocking_seconds)
        self._threads = threads
        environment = Environment(
            clock=VirtualClock(asyncio.get_running_loop(), threads),
            filesystem=self.disk,
            blocking=threads,
            network=host,
            random=Random(f"{self._stage.seed} broker {number}"),
        )
        self._stage.trace.note(f"broker starts {number}")
        began: asyncio.Future[Broker | None] = asyncio.get_running_loop().create_future()
        self._began = began
        process.run(self._begin(environment, began))
        broker = await began
        if broker is None:
            if self._process is process:
                self._process = None
                process.kill()
                host.kill()
                self.disk.process_ended()
            return False
        self.broker = broker
        return True

    async def _begin(self, environment: Environment, began: asyncio.Future[Broker | None]) -> None:
        broker = Broker(self._config, environment)
        process = self._process
        try:
            await broker.start()
        except (BarnabasError, OSError) as error:
            if process is not None and process.is_alive and not self.has_disk_fault:
                self._stage.complain("start-failed", f"{type(error).__name__}: {error}")
            if not began.done():
                began.set_result(None)
        except Exception as error:
            if process is None or not process.is_alive:
                return
            self._stage.complain("start-failed", f"{type(error).__name__}: {error}")
            began.set_result(None)
        else:
            if not began.done():
                began.set_result(broker)

    @property
    def has_disk_fault(self) -> bool:
        return self.bad_folder is not None or self.disk.space is not None

    async def stop(self) -> None:
        """Stop it cleanly."""
        broker, process = self.broker, self._process
        if broker is None or process is None:
            return
        self._stage.trace.note("broker stops")
        self.broker = None
        stopped = asyncio.get_running_loop().create_future()
        self._began = stopped

        async def run() -> None:
            await broker.stop()
            if not stopped.done():
                stopped.set_result(None)

        process.run(run())
        await stopped
        self._end(power=False)

    def kill(self, *, power: bool) -> None:
        """End it at this point; with `power`, the machine loses what was not fsynced."""
        self._stage.trace.note(f"broker killed {power}")
        self._end(power=power)

    def light_fuse(self, changes: int, *, power: bool) -> None:
        """Kill it in the middle of a change of its disk, so many changes from now."""
        self._fuse = (changes, power)

    def slow_down(self, seconds: float) -> None:
        """How long a blocking call, like an fsync, waits on average before it is made, and after."""
        self._blocking_seconds = seconds
        if self._threads is not None:
            self._threads.mean_delay = seconds

    def mend(self) -> None:
        """Take all faults of the disk away."""
        self.disk.space = None
        self.bad_folder = None
        self.slow_down(self.usual_delay)
        self._fuse = None

    def _end(self, *, power: bool) -> None:
        self.broker = None
        process, self._process = self._process, None
        host, self._host = self._host, None
        if process is not None:
            process.kill()
        if host is not None and power:
            self._stage.network.power_off(BROKER)
        elif host is not None:
            host.kill()
        if power:
            space = self.disk.space
            self.disk.crash(self._chance)
            self.disk.refuse, self.disk.space = self._refuse, space
            self._stage.network.power_on(BROKER)
            self.needs_power_cut = False
        else:
            self.disk.process_ended()
        began = getattr(self, "_began", None)
        if began is not None and not began.done():
            began.set_result(None)

    def _refuse(self, operation: str, path: str) -> Exception | None:
        """Asked by the disk before each operation."""
        process = VirtualProcess.current()
        if process is not None and not process.is_alive:
            raise Killed
        if self._fuse is not None and operation in _CHANGES:
            changes, power = self._fuse
            self._fuse = (changes - 1, power)
            if changes <= 0:
                self._fuse = None
                self._stage.trace.note(f"broker killed in {operation} of {path}, {power}")
                self._end(power=power)
                raise Killed
        if self.bad_folder is not None and path.startswith(self.bad_folder):
            if operation == "sync":
                self.needs_power_cut = True
            return OSError(errno.EIO, "the disk is broken", path)
        return None
