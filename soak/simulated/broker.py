"""One broker of the simulation, with its disk: start, stop, pause, kill and power cut."""

from __future__ import annotations

import asyncio
import errno
import itertools
from collections.abc import Callable, Collection
from contextlib import suppress
from random import Random
from typing import Any, cast

from simulation.blocking import VirtualThreads
from simulation.clocks import START_MS, VirtualClock
from simulation.ensemble import SimulatedEnsemble
from simulation.faulty_disk import FaultyDisk
from simulation.network import Host
from simulation.virtual_time import Killed, VirtualProcess

from barnabas.base.environment.environment import Environment
from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.errors import BarnabasError
from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.controller.elections import ElectionType
from barnabas.broker.logs.discarding import discard_replica, find_replica
from barnabas.broker.server.broker import Broker, BrokerFailedError
from soak.simulated.stage import FOLDERS, SKEW_MS, Stage, host_of

_CHANGES = frozenset({"write", "truncate", "sync", "rename", "remove", "remove_tree", "sync_directory"})
#: seconds
_BLOCKING = (0.0005, 0.002, 0.02)
_STOPPING = 30.0


class _Removing:
    """A disk that deletes files instead of moving them to another folder, because the simulated disk has no
    such moves.
    """

    def __init__(self, disk: FaultyDisk) -> None:
        self._disk = disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._disk, name)

    def rename(self, source: str, target: str) -> None:
        if source.rpartition("/")[0] == target.rpartition("/")[0]:
            self._disk.rename(source, target)
        elif source.rpartition(".")[2].endswith("-future"):
            self._disk.remove_tree(source)
        else:
            self._disk.remove(source)


class SimulatedBroker:
    """One broker on its own simulated machine. The machine stays when the broker's process ends.

    Args:
        settings: the broker's settings.
        ensemble: the store of the cluster's metadata; None if the broker runs alone, with its own store.

    Attributes:
        broker: the running broker; None if there is none.
        bad_folder: a log directory whose reads and writes fail.
    """

    def __init__(
        self,
        stage: Stage,
        broker_id: int,
        settings: dict[str, str],
        ensemble: SimulatedEnsemble | None = None,
    ) -> None:
        self.id = broker_id
        self.name = host_of(broker_id)
        self._stage = stage
        self._settings = settings
        self._ensemble = ensemble
        self._chance = stage.random(f"{self.name}'s disk")
        self._numbers = itertools.count(1)
        self._process: VirtualProcess | None = None
        self._host: Host | None = None
        self._threads: VirtualThreads | None = None
        skew = self._chance.randint(-SKEW_MS, SKEW_MS) if ensemble is not None else 0
        self._start_ms = START_MS + skew
        self.clock = self._clock()
        self.disk = FaultyDisk(self.clock)
        self.disk.refuse = self._refuse
        self.broker: Broker | None = None
        self.bad_folder: str | None = None
        #: as fast as this disk is without faults
        self.usual_delay = self._blocking_seconds = self._chance.choice(_BLOCKING)
        #: changes of the disk until the broker is killed in the middle of one; whether the power goes, too
        self._fuse: tuple[int, bool, str] | None = None
        #: the folder that is not in the settings, or whose disk is not mounted
        self._missing: str | None = None
        self._unmounted: str | None = None
        #: it has begun with logs that it could not open, and opens them at its next start
        self.needs_restart = False
        #: an fsync has failed, so only a cut of power shows what the disk has
        self.needs_power_cut = False
        self._is_hung = False
        self._started_at = 0.0
        self._starting = asyncio.Lock()
        self._began: asyncio.Future[Broker | None] | None = None
        #: called when the power goes
        self.on_power_cut: Callable[[], None] = lambda: None
        #: called when a start is complete, before any client has written
        self.on_start: Callable[[], None] = lambda: None
        #: asked when a fuse has burnt down: another machine may have lost its power since it was lit
        self.may_lose_power: Callable[[], bool] = lambda: True

    def _clock(self, threads: VirtualThreads | None = None) -> VirtualClock:
        return VirtualClock(asyncio.get_running_loop(), threads, self._start_ms)

    @property
    def is_up(self) -> bool:
        return self.broker is not None

    @property
    def process_name(self) -> str | None:
        """The name of the current process, different after each start; None if no process runs."""
        return None if self._process is None else self._process.name

    @property
    def is_paused(self) -> bool:
        return self._process is not None and self._process.is_paused

    async def start(self) -> bool:
        """Start the broker, unless it runs. Return False if it cannot start now, or is killed during the
        start.
        """
        async with self._starting:
            return self.is_up or await self._start()

    async def _start(self) -> bool:
        if self._process is not None:  # a start that nobody waits for any more
            self._end(power=False)
        number = next(self._numbers)
        self._started_at = asyncio.get_running_loop().time()
        self.needs_restart = self.has_disk_fault
        process = self._process = VirtualProcess(f"{self.name} {number}")
        host = self._host = self._stage.network.host(self.name)
        threads = VirtualThreads(self._stage.random(f"threads {self.id} {number}"), self._blocking_seconds)
        self._threads = threads
        if self._is_hung:
            threads.hang()
        ensemble = self._ensemble
        environment = Environment(
            clock=self._clock(threads),
            filesystem=self.disk,
            blocking=threads,
            network=host,
            random=Random(f"{self._stage.seed} broker {self.id} {number}"),
            open_store=None if ensemble is None else lambda: ensemble.open(self.name),
        )
        self._stage.trace.note(f"{self.name} starts {number}")
        began: asyncio.Future[Broker | None] = asyncio.get_running_loop().create_future()
        self._began = began
        process.run(self._begin(process, environment, began))
        broker = await began
        if broker is None:
            if self._process is process:
                self._process = None
                process.kill()
                host.kill()
                self.disk.process_ended()
            return False
        self.broker = broker
        self.on_start()
        return True

    async def _begin(
        self, process: VirtualProcess, environment: Environment, began: asyncio.Future[Broker | None]
    ) -> None:
        folders = ",".join(folder for folder in FOLDERS if folder != self._missing)
        broker = Broker(BrokerConfig.from_text(self._settings | {"log.dirs": folders}), environment)
        try:
            await broker.start()
        except (BarnabasError, OSError) as error:
            if process.is_alive and not self.may_fail_to_start:
                self._stage.complain("start-failed", f"{self.name}: {type(error).__name__}: {error}")
            if not began.done():
                began.set_result(None)
        except Exception as error:
            if not process.is_alive:
                return
            self._stage.complain("start-failed", f"{self.name}: {type(error).__name__}: {error}")
            began.set_result(None)
        else:
            if not began.done():
                began.set_result(broker)
            await self._watch_failure(process, broker)

    async def _watch_failure(self, process: VirtualProcess, broker: Broker) -> None:
        """Stop a broker that cannot continue. A simulated supervisor starts it again."""
        try:
            await broker.failed()
        except BrokerFailedError as error:
            if not self.may_fail_to_start:
                self._stage.complain("broker-failed", f"{self.name}: {error}")
        self._stage.trace.note(f"{self.name} gives up")
        self.broker = None
        await broker.stop()
        asyncio.get_running_loop().call_soon(self._end_of, process, context=self._stage.context)

    def _end_of(self, process: VirtualProcess) -> None:
        if self._process is process:
            self._end(power=False)

    @property
    def may_fail_to_start(self) -> bool:
        """Return whether a fault explains that a start fails."""
        return (
            self.has_disk_fault
            or self._is_hung
            or (self._ensemble is not None and self._ensemble.was_cut(self.name, self._started_at))
        )

    @property
    def has_disk_fault(self) -> bool:
        return self.bad_folder is not None or self.disk.space is not None

    async def stop(self) -> None:
        """Stop the broker cleanly. Kill it if it does not stop in time."""
        broker, process = self.broker, self._process
        if broker is None or process is None:
            return
        self._stage.trace.note(f"{self.name} stops")
        self.resume()
        self.broker = None
        stopped = asyncio.get_running_loop().create_future()
        self._began = stopped

        async def run() -> None:
            await broker.stop()
            if not stopped.done():
                stopped.set_result(None)

        process.run(run())
        await asyncio.wait([stopped], timeout=_STOPPING)
        if not stopped.done():
            self._stage.complain("stop-hung", f"{self.name} does not stop in {_STOPPING:g} s")
        self._end_of(process)

    @property
    def has_offline_log(self) -> bool:
        """Return whether a full disk has interrupted the truncation of a log. The next start opens it."""
        return self.broker is not None and any(log.is_offline for log in self.broker.logs)

    def lose_replica(self, name: TopicPartition, *, is_discarded: bool) -> bool:
        """Remove a replica while no process runs, or discard it. Return False if the replica is not on this
        broker.
        """
        folders = find_replica(self.disk, FOLDERS, name)
        if not folders or self._process is not None or self.has_disk_fault:
            return False
        self._stage.trace.note(f"{self.name} loses {name} {is_discarded}")
        if is_discarded:
            disk = cast("FileSystem", _Removing(self.disk))
            discard_replica(disk, folders, name, "damaged.1", self._stage.trace.note)
            return True
        for folder in folders:
            if any(entry.name == str(name) for entry in self.disk.entries(folder)):
                self.disk.remove_tree(f"{folder}/{name}")
                self.disk.sync_directory(folder)
        return True

    def lose_disk(self) -> bool:
        """Replace the disk by an empty one while no process runs. Return False if that is not possible."""
        if self._process is not None or self.has_disk_fault:
            return False
        self._stage.trace.note(f"{self.name} loses its disk")
        for folder in FOLDERS:
            self.disk.remove_tree(folder)
            self.disk.make_directory(folder)
        self.disk.sync_directory("/")  # else a power cut can bring the lost disk back
        return True

    @property
    def lacks_folder(self) -> bool:
        return self._missing is not None or self._unmounted is not None

    def take_folder(self, folder: str, *, is_mount: bool) -> bool:
        """Take a folder from a broker that does not run. Return False if that is not possible.

        Args:
            is_mount: the folder stays in the settings, and is empty. If not, the settings do not name it.
        """
        if self._process is not None or self.has_disk_fault or self.lacks_folder:
            return False
        self._stage.trace.note(f"{self.name} lacks {folder} {is_mount}")
        if is_mount:
            self._unmounted = folder
            self.disk.unmount(folder)
        else:
            self._missing = folder
        return True

    def bring_back_folder(self) -> None:
        """Give a broker that does not run its folder back. Do nothing if it has all folders."""
        self._stage.trace.note(f"{self.name} has all folders")
        if self._unmounted is not None:
            self.disk.mount(self._unmounted)
        self._missing = self._unmounted = None

    async def elect_uncleanly(self, names: Collection[TopicPartition]) -> None:
        """Elect leaders uncleanly, as an operator does who knows that no record is lost. This broker is the
        controller.
        """
        broker, process = self.broker, self._process
        if broker is None or process is None:
            return
        done = asyncio.get_running_loop().create_future()
        elections = broker.controller.elections

        async def run() -> None:
            with suppress(BarnabasError):
                await elections.elect(ElectionType.UNCLEAN, names)
            if not done.done():
                done.set_result(None)

        process.run(run())
        await asyncio.wait([done], timeout=_STOPPING)

    def pause(self) -> None:
        """Stop the broker as SIGSTOP does, until `resume`."""
        if self._process is not None and not self._process.is_paused:
            self._stage.trace.note(f"{self.name} paused")
            self._process.pause()
            self._stage.network.pause(self.name)

    def resume(self) -> None:
        if self.is_paused:
            assert self._process is not None
            self._stage.trace.note(f"{self.name} resumed")
            self._stage.network.resume(self.name)
            self._process.resume()

    def kill(self, *, power: bool) -> None:
        """Kill the broker now. With `power`, the machine also loses all data that was not fsynced."""
        self._stage.trace.note(f"{self.name} killed {power}")
        self._end(power=power)

    def light_fuse(self, changes: int, *, power: bool, behind: str = "") -> None:
        """Kill the broker in the middle of a change of its disk, after `changes` more changes.

        Args:
            behind: count only from the first change of a file whose name ends with this text.
        """
        self._fuse = (changes, power, behind)

    def slow_down(self, seconds: float) -> None:
        """Set the mean delay of a blocking call, for example an fsync, before and after its effect."""
        self._blocking_seconds = seconds
        if self._threads is not None:
            self._threads.mean_delay = seconds

    def hang_disk(self) -> None:
        """Block all blocking calls until `unhang_disk`. The event loop continues."""
        self._is_hung = True
        if self._threads is not None:
            self._threads.hang()

    def unhang_disk(self) -> None:
        self._is_hung = False
        if self._threads is not None:
            self._threads.unhang()

    def mend(self) -> None:
        """End all faults of the disk, and let the broker run."""
        self.resume()
        self.unhang_disk()
        self.disk.space = None
        self.bad_folder = None
        self.slow_down(self.usual_delay)
        self._fuse = None

    def _end(self, *, power: bool) -> None:
        self.broker = None
        process, self._process = self._process, None
        host, self._host = self._host, None
        network = self._stage.network
        if process is not None:
            if process.is_paused:
                network.resume(self.name)
            process.kill()
        if host is not None and power:
            network.power_off(self.name)
        elif host is not None:
            host.kill()
        if power:
            space = self.disk.space
            self.disk.crash(self._chance)
            self.disk.refuse, self.disk.space = self._refuse, space
            network.power_on(self.name)
            self.needs_power_cut = False
            self.on_power_cut()
        else:
            self.disk.process_ended()
        if self._began is not None and not self._began.done():
            self._began.set_result(None)

    def _refuse(self, operation: str, path: str) -> Exception | None:
        """Return the error of a disk operation, or None. The disk calls this before each operation."""
        process = VirtualProcess.current()
        if process is not None and not process.is_alive:
            raise Killed
        if self._fuse is not None and operation in _CHANGES:
            changes, power, behind = self._fuse
            if path.endswith(behind):
                changes, behind = changes - 1, ""
            self._fuse = (changes, power, behind)
            if changes < 0:
                self._fuse = None
                power = power and self.may_lose_power()
                self._stage.trace.note(f"{self.name} killed in {operation} of {path}, {power}")
                self._end(power=power)
                raise Killed
        if self.bad_folder is not None and path.startswith(self.bad_folder):
            if operation == "sync":
                self.needs_power_cut = True
            return OSError(errno.EIO, "the disk is broken", path)
        return None
