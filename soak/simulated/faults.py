"""Which faults a seed brings, and when: of the broker, of its disk, of the network, of clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeAlias

from soak.simulated.broker import SimulatedBroker
from soak.simulated.cast import Cast
from soak.simulated.plan import FOLDERS
from soak.simulated.stage import BROKER, Stage

Fault: TypeAlias = Callable[[Random], Coroutine[Any, Any, None]]


class Nemesis:
    """Carries out faults until `calm`: those of one kind one after another, beside those of the others.

    Args:
        durable: whether what is acknowledged has been fsynced, so that the power may go.
    """

    def __init__(self, stage: Stage, broker: SimulatedBroker, cast: Cast, *, durable: bool) -> None:
        self._stage = stage
        self._broker = broker
        self._cast = cast
        self._durable = durable
        self._tasks: list[asyncio.Task[None]] = []
        #: how often each kind has come
        self.counts: dict[str, int] = {}

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        kinds: dict[str, tuple[float, list[Fault]]] = {
            "broker": (3.5, self._broker_faults()),
            "network": (3.0, [self._cut, self._slow, self._reset, self._lose_answers]),
            "client": (3.0, [self._pause, self._replace, self._zombie]),
        }
        for name, (gap, of_kind) in kinds.items():
            self._tasks.append(
                loop.create_task(self._bring(self._stage.random(f"faults {name}"), gap, of_kind))
            )

    async def calm(self) -> None:
        """No more faults; everything heals."""
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        self._stage.network.heal_all()
        self._stage.losing.clear()
        self._cast.resume_all()
        had_bad_folder = self._broker.bad_folder is not None
        self._broker.mend()
        if had_bad_folder or self._broker.needs_power_cut:
            await self._restart(power=self._durable)
        await self._up()

    def _broker_faults(self) -> list[Fault]:
        kinds = [
            self._kill,
            self._kill,
            self._kill_in_change,
            self._clean_restart,
            self._full,
            self._broken_folder,
        ]
        return [*kinds, self._slow_sync]

    async def _bring(self, random: Random, gap: float, kinds: list[Fault]) -> None:
        while True:
            await asyncio.sleep(random.expovariate(1 / gap))
            fault = random.choice(kinds)
            name = fault.__name__.strip("_").replace("_", " ")
            self.counts[name] = self.counts.get(name, 0) + 1
            self._stage.trace.note(f"fault {name}")
            await fault(random)

    # --- of the broker ---

    async def _kill(self, random: Random) -> None:
        self._broker.kill(power=self._loses_power(random))
        await self._come_back(random)

    async def _kill_in_change(self, random: Random) -> None:
        self._broker.light_fuse(random.randrange(60), power=self._loses_power(random))
        await asyncio.sleep(random.uniform(0.5, 3.0))
        if random.random() < 0.3:  # and once more while it recovers
            self._broker.light_fuse(random.randrange(10), power=self._loses_power(random))
        await self._come_back(random)

    async def _clean_restart(self, random: Random) -> None:
        await self._broker.stop()
        await self._come_back(random)

    async def _full(self, random: Random) -> None:
        self._broker.disk.space = random.choice([0, random.randrange(20_000)])
        await asyncio.sleep(random.uniform(0.5, 4.0))
        if random.random() < 0.3:
            self._broker.kill(power=self._loses_power(random))
            await self._broker.start()
            await asyncio.sleep(random.uniform(0.1, 1.0))
        self._broker.disk.space = None
        await self._come_back(random)

    async def _broken_folder(self, random: Random) -> None:
        self._broker.bad_folder = random.choice(FOLDERS)
        await asyncio.sleep(random.uniform(0.5, 4.0))
        self._broker.bad_folder = None
        if random.random() < 0.3 and not self._broker.needs_power_cut:
            await self._broker.stop()
        await self._restart(
            power=self._durable and (self._broker.needs_power_cut or self._loses_power(random))
        )

    async def _slow_sync(self, random: Random) -> None:
        """Sometimes with a crash while much waits for them."""
        self._broker.slow_down(random.choice([0.05, 0.2]))
        await asyncio.sleep(random.uniform(1.0, 5.0))
        if random.random() < 0.5:
            self._broker.kill(power=self._loses_power(random))
        self._broker.slow_down(self._broker.usual_delay)
        await self._come_back(random)

    def _loses_power(self, random: Random) -> bool:
        return self._durable and (random.random() < 0.6 or self._broker.needs_power_cut)

    async def _come_back(self, random: Random) -> None:
        await asyncio.sleep(random.uniform(0.05, 2.0))
        await self._up()

    async def _restart(self, *, power: bool) -> None:
        self._broker.kill(power=power)
        await asyncio.sleep(0.1)
        await self._up()

    async def _up(self) -> None:
        """Start the broker until it serves."""
        tries = 0
        while not self._broker.is_up:
            tries += 1
            if tries > 50:
                self._stage.complain("start-failed", "the broker does not start")
                return
            if not await self._broker.start():
                await asyncio.sleep(0.5)

    # --- of the network ---

    async def _cut(self, random: Random) -> None:
        one_way = random.random() < 0.5
        pairs = [(name, BROKER) if random.random() < 0.5 else (BROKER, name) for name in self._some(random)]
        for pair in pairs:
            self._stage.network.cut(*pair, one_way=one_way)
        await asyncio.sleep(random.choice([random.uniform(0.1, 3.0), random.uniform(3.0, 9.0)]))
        for pair in pairs:
            self._stage.network.heal(*pair, one_way=one_way)

    async def _slow(self, random: Random) -> None:
        names = self._some(random)
        for name in names:
            self._stage.network.slow(BROKER, name, random.choice([500, 5000]))
        await asyncio.sleep(random.uniform(0.5, 5.0))
        for name in names:
            self._stage.network.slow(BROKER, name, None)

    async def _reset(self, random: Random) -> None:
        for name in self._some(random):
            self._stage.network.reset(name, BROKER)

    async def _lose_answers(self, random: Random) -> None:
        """Reset connections just when a request has come: it is carried out, and nobody hears of it."""
        for name in self._some(random):
            self._stage.losing[name] = random.randint(1, 6)
        await asyncio.sleep(random.uniform(0.5, 3.0))
        self._stage.losing.clear()

    def _some(self, random: Random) -> list[str]:
        alive = [client.name for client in self._cast.clients.values()]
        return random.sample(alive, random.randint(1, max(1, len(alive) // 2)))

    # --- of clients ---

    async def _pause(self, random: Random) -> None:
        """Sometimes for so long that its group or its transaction goes on without it."""
        client = random.choice(list(self._cast.clients.values()))
        client.pause()
        await asyncio.sleep(random.choice([random.uniform(0.1, 3.0), random.uniform(6.0, 12.0)]))
        client.resume()

    async def _replace(self, random: Random) -> None:
        name = random.choice(list(self._cast.clients))
        self._cast.kill(name, silently=random.random() < 0.5)
        await asyncio.sleep(random.uniform(0.1, 3.0))
        self._cast.engage(name)

    async def _zombie(self, random: Random) -> None:
        """Pause a client, give its place to another, and let the first go on."""
        names = [name for name, slot in self._cast.slots.items() if slot.task.transactional_id]
        if not names:
            return
        name = random.choice(names)
        zombie = self._cast.clients[name]
        zombie.pause()
        await asyncio.sleep(random.uniform(0.1, 2.0))
        self._cast.engage(name)
        await asyncio.sleep(random.uniform(0.5, 5.0))
        zombie.resume()
