"""Faults of brokers, and of the machines on which they run."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeAlias

from soak.simulated.broker import SimulatedBroker
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.plan import SESSION_TIMEOUT
from soak.simulated.stage import FOLDERS, Stage

#: in seconds, how long a fault waits for a dead letter, and how often it looks
_LETTER_PATIENCE, _LETTER_PAUSE = 3.0, 0.002

#: how often a broker that loses a replica loses all of them, if it may
_WHOLE_DISK = 0.5

Fault: TypeAlias = Callable[[Random], Coroutine[Any, Any, None]]


class BrokerFaults:
    """Faults of one or more brokers. Each fault chooses brokers without another fault, and ends with them
    running.

    The power of a machine may fail if the broker has fsynced every record that it acknowledged. Otherwise it
    may fail on one machine, if all others have the records that this machine may lose:
    `SimulatedCluster.may_lose_power`.
    """

    def __init__(self, stage: Stage, cluster: SimulatedCluster) -> None:
        self._stage = stage
        self._cluster = cluster
        self._in_trouble: dict[int, None] = {}
        #: decides whether a broker loses its whole disk; a source of its own, so that other choices stay
        self._whole_disks = stage.random("whole disks")

    @property
    def kinds(self) -> list[Fault]:
        """Return the faults of one broker."""
        found: list[Fault] = [
            self._kill,
            self._kill,
            self._kill_in_change,
            self._kill_at_roll,
            self._clean_restart,
            self._full,
            self._broken_folder,
            self._slow_sync,
        ]
        if len(self._cluster) > 1:
            found += [self._pause_broker, self._pause_broker, self._hang_disk, self._kill_controller]
            found += [self._lose_replica, self._strike_at_letter]
        return found

    @property
    def of_folders(self) -> list[Fault]:
        """Return the faults of a broker whose logs move between folders."""
        return [self._kill_at_switch, self._unmount]

    @property
    def of_several(self) -> list[Fault]:
        """Return the faults of several brokers at a time."""
        return [self._kill_several, self._kill_all, self._rolling_restart]

    async def mend(self) -> None:
        """End all faults, and start all brokers."""
        self._in_trouble.clear()
        for broker in self._cluster.brokers.values():
            had_bad_folder = broker.bad_folder is not None
            broker.mend()
            if broker.lacks_folder:
                self._bring_back_folder(broker)
            if had_bad_folder or broker.needs_power_cut:
                broker.kill(power=self._cluster.durable)
            elif broker.needs_restart or broker.has_offline_log:
                broker.kill(power=False)
        await asyncio.sleep(0.1)
        await self._cluster.up()
        await self._cluster.accept_losses()

    # --- of one ---

    async def _kill(self, random: Random) -> None:
        await self._with_one(random, self._kill_one)

    async def _kill_in_change(self, random: Random) -> None:
        await self._with_one(random, self._kill_one_in_change)

    async def _kill_at_roll(self, random: Random) -> None:
        await self._with_one(random, self._kill_one_at_roll)

    async def _kill_at_switch(self, random: Random) -> None:
        await self._with_one(random, self._kill_one_at_switch)

    async def _unmount(self, random: Random) -> None:
        await self._with_one(random, self._unmount_one)

    async def _clean_restart(self, random: Random) -> None:
        await self._with_one(random, self._restart_one)

    async def _full(self, random: Random) -> None:
        await self._with_one(random, self._fill_one)

    async def _broken_folder(self, random: Random) -> None:
        await self._with_one(random, self._break_folder_of_one)

    async def _slow_sync(self, random: Random) -> None:
        await self._with_one(random, self._slow_one)

    async def _pause_broker(self, random: Random) -> None:
        await self._with_one(random, self._pause_one)

    async def _hang_disk(self, random: Random) -> None:
        await self._with_one(random, self._hang_one)

    async def _kill_controller(self, random: Random) -> None:
        await self._with_one(
            random, self._kill_one, among=lambda b: b.broker is not None and b.broker.controller.active
        )

    async def _lose_replica(self, random: Random) -> None:
        await self._with_one(random, self._lose_replica_of_one)

    async def _strike_at_letter(self, random: Random) -> None:
        """Kill or pause a leader when a dead letter is in the log, and its record is not archived yet.

        This is the leader of the record's partition, or of the dead-letter queue.
        """
        involved = await self.await_letter()
        if involved:
            fault = random.choice([self._kill_one, self._pause_one])
            await self._with_one(random, fault, among=lambda broker: broker.id in involved)

    async def await_letter(self) -> set[int]:
        """Wait until a dead letter is in a log. Return the ids of the brokers that lead the partitions."""
        before = self._cluster.letters()
        for _ in range(round(_LETTER_PATIENCE / _LETTER_PAUSE)):
            await asyncio.sleep(_LETTER_PAUSE)
            now = self._cluster.letters()
            grown = {broker for (broker, name), end in now.items() if end > before.get((broker, name), end)}
            if grown:
                return grown | self._cluster.leaders_with_letters()
            before = now
        return set()

    async def _with_one(
        self,
        random: Random,
        fault: Callable[[SimulatedBroker, Random], Coroutine[Any, Any, None]],
        *,
        among: Callable[[SimulatedBroker], bool] = lambda broker: True,
    ) -> None:
        brokers = filter(among, self._cluster.brokers.values())
        free = [broker for broker in brokers if broker.id not in self._in_trouble]
        if not free:
            return
        broker = random.choice(free)
        self._in_trouble[broker.id] = None
        self._stage.trace.note(f"of {broker.name}")
        await fault(broker, random)
        self._in_trouble.pop(broker.id, None)

    async def _kill_one(self, broker: SimulatedBroker, random: Random) -> None:
        broker.kill(power=self._loses_power(broker, random))
        await self._come_back(broker, random)

    async def _kill_one_in_change(self, broker: SimulatedBroker, random: Random) -> None:
        broker.light_fuse(random.randrange(60), power=self._loses_power(broker, random))
        await asyncio.sleep(random.uniform(0.5, 3.0))
        if random.random() < 0.3:  # and once more while it recovers
            broker.light_fuse(random.randrange(10), power=self._loses_power(broker, random))
        await self._come_back(broker, random)

    async def _kill_one_at_roll(self, broker: SimulatedBroker, random: Random) -> None:
        """Kill a broker when a segment is full: it writes a snapshot of producers, and the segment waits for
        its fsync.
        """
        power = self._loses_power(broker, random)
        if random.random() < 0.7:  # so that the segment does wait
            broker.slow_down(random.choice([0.05, 0.3]))
        broker.light_fuse(random.randrange(8), power=power, behind=".snapshot")
        await asyncio.sleep(random.uniform(1.0, 3.0))
        broker.slow_down(broker.usual_delay)
        await self._come_back(broker, random)

    async def _kill_one_at_switch(self, broker: SimulatedBroker, random: Random) -> None:
        """Kill a broker when a log switches to its copy in another folder, or soon after that."""
        power = self._loses_power(broker, random)
        broker.light_fuse(random.randrange(20), power=power, behind="-future")
        await asyncio.sleep(random.uniform(1.0, 4.0))
        await self._come_back(broker, random)

    async def _unmount_one(self, broker: SimulatedBroker, random: Random) -> None:
        """Start a broker without one of its folders, and later with it again.

        The settings do not name the folder, or its disk is not mounted: the folder is empty. A single broker
        never has an empty folder. It could not serve again what it has written there.
        """
        folder, is_mount = random.choice(FOLDERS), random.random() < 0.5
        if random.random() < 0.5:
            await broker.stop()
        broker.kill(power=False)
        is_alone = len(self._cluster) == 1
        if (is_alone or self._cluster.may_lose_disk(broker)) and broker.take_folder(
            folder, is_mount=is_mount and not is_alone
        ):
            if not is_alone:
                self._cluster.lost(broker)
            await self._come_back(broker, random)
            await asyncio.sleep(random.uniform(0.2, 3.0))
            if random.random() < 0.5:
                await broker.stop()
            self._bring_back_folder(broker)
        await self._come_back(broker, random)

    def _bring_back_folder(self, broker: SimulatedBroker) -> None:
        broker.kill(power=False)
        broker.bring_back_folder()

    async def _restart_one(self, broker: SimulatedBroker, random: Random) -> None:
        await broker.stop()
        await self._come_back(broker, random)

    async def _fill_one(self, broker: SimulatedBroker, random: Random) -> None:
        broker.disk.space = random.choice([0, random.randrange(20_000)])
        await asyncio.sleep(random.uniform(0.5, 4.0))
        if random.random() < 0.3:
            broker.kill(power=self._loses_power(broker, random))
            await broker.start()
            await asyncio.sleep(random.uniform(0.1, 1.0))
        broker.disk.space = None
        if broker.needs_restart:
            broker.kill(power=False)
        await self._come_back(broker, random)

    async def _lose_replica_of_one(self, broker: SimulatedBroker, random: Random) -> None:
        """Remove a replica, or all of them, while the broker does not run. Sometimes kill the broker again
        while it copies what it has lost.
        """
        if random.random() < 0.5:
            await broker.stop()
        else:
            broker.kill(power=False)
        if self._lose_data(broker, random):
            self._cluster.lost(broker)
        await self._come_back(broker, random)
        if random.random() < 0.3:
            await asyncio.sleep(random.uniform(0.0, 1.0))
            broker.kill(power=False)
            await self._come_back(broker, random)

    def _lose_data(self, broker: SimulatedBroker, random: Random) -> bool:
        """Remove one replica of a stopped broker, or replace its disk by an empty one. Return whether it was
        possible.
        """
        if self._whole_disks.random() < _WHOLE_DISK and self._cluster.may_lose_disk(broker):
            return broker.lose_disk()
        names = self._cluster.replicas_to_lose(broker)
        return bool(names) and broker.lose_replica(random.choice(names), is_discarded=random.random() < 0.5)

    async def _break_folder_of_one(self, broker: SimulatedBroker, random: Random) -> None:
        broker.bad_folder = random.choice(FOLDERS)
        await asyncio.sleep(random.uniform(0.5, 4.0))
        broker.bad_folder = None
        if random.random() < 0.3 and not broker.needs_power_cut:
            await broker.stop()
        broker.kill(power=self._cluster.durable and self._loses_power(broker, random))
        await asyncio.sleep(0.1)
        await self._cluster.up([broker])

    async def _slow_one(self, broker: SimulatedBroker, random: Random) -> None:
        """Slow the disk of a broker. Sometimes kill the broker while many records wait for an fsync."""
        broker.slow_down(random.choice([0.05, 0.2]))
        await asyncio.sleep(random.uniform(1.0, 5.0))
        if random.random() < 0.5:
            broker.kill(power=self._loses_power(broker, random))
        broker.slow_down(broker.usual_delay)
        await self._come_back(broker, random)

    async def _pause_one(self, broker: SimulatedBroker, random: Random) -> None:
        """Pause a broker for less than the session timeout, or for longer: it then continues as a zombie."""
        broker.pause()
        await asyncio.sleep(
            random.choice([random.uniform(0.1, 2.0), random.uniform(1.0, 2.5) * SESSION_TIMEOUT])
        )
        broker.resume()
        await self._cluster.up([broker])

    async def _hang_one(self, broker: SimulatedBroker, random: Random) -> None:
        """Block all blocking calls to the disk of a broker, while its event loop continues."""
        broker.hang_disk()
        await asyncio.sleep(random.uniform(0.5, 2.5 * SESSION_TIMEOUT))
        if random.random() < 0.3:
            broker.kill(power=self._loses_power(broker, random))
        broker.unhang_disk()
        await self._come_back(broker, random)

    # --- of several ---

    async def _kill_several(self, random: Random) -> None:
        brokers = list(self._cluster.brokers.values())
        chosen = random.sample(brokers, random.randint(2, max(2, len(brokers) - 1)))
        await self._kill_these(chosen, random)

    async def _kill_all(self, random: Random) -> None:
        await self._kill_these(list(self._cluster.brokers.values()), random)

    async def _kill_these(self, brokers: list[SimulatedBroker], random: Random) -> None:
        is_at_once = random.random() < 0.5
        for broker in brokers:
            broker.kill(power=self._loses_power(broker, random))
            if not is_at_once:
                await asyncio.sleep(random.uniform(0.0, 1.5))
        await asyncio.gather(*(self._come_back(broker, random) for broker in brokers))

    async def _rolling_restart(self, random: Random) -> None:
        for broker in list(self._cluster.brokers.values()):
            await broker.stop()
            await self._cluster.up([broker])
            await asyncio.sleep(random.uniform(0.0, 2.0))

    def _loses_power(self, broker: SimulatedBroker, random: Random) -> bool:
        wants = random.random() < 0.6 or broker.needs_power_cut
        return wants and self._cluster.may_lose_power(broker)

    async def _come_back(self, broker: SimulatedBroker, random: Random) -> None:
        await asyncio.sleep(random.uniform(0.05, 2.0))
        await self._cluster.up([broker])
