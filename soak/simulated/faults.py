"""The faults of a seed and their times: of brokers, disks, the metadata store, the network and clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from itertools import combinations
from random import Random
from typing import Any, TypeAlias

from simulation.ensemble import SimulatedEnsemble

from soak.simulated.broker_faults import BrokerFaults
from soak.simulated.cast import Cast
from soak.simulated.cluster import SimulatedCluster
from soak.simulated.ensemble_faults import EnsembleFaults
from soak.simulated.plan import COPY, LOG_MOVER, SESSION_TIMEOUT
from soak.simulated.stage import Stage, host_of
from soak.simulated.unsettled import UnsettledProposals
from soak.simulated.workers import Work

#: the part of the seeds of clusters in which a broker is isolated
_ISOLATING = 0.125
#: seconds; a broker counts itself isolated after six or more of them
_ISOLATION = (6.0, 10.0)
#: in seconds, how long before the end of its session a leader's requests to other brokers are held
_HELD = 0.5

Fault: TypeAlias = Callable[[Random], Coroutine[Any, Any, None]]


class Nemesis:
    """Executes faults until `calm`. Faults of one kind follow each other; faults of
    different kinds overlap.
    """

    def __init__(self, stage: Stage, cluster: SimulatedCluster, cast: Cast) -> None:
        self._stage = stage
        self._cluster = cluster
        self._cast = cast
        self._of_brokers = BrokerFaults(stage, cluster)
        self._tasks: list[asyncio.Task[None]] = []
        #: how often each kind has come
        self.counts: dict[str, int] = {}

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        kinds: dict[str, tuple[float, list[Fault]]] = {
            "broker": (3.5, self._of_brokers.kinds),
            "network": (3.0, [self._cut, self._slow, self._reset, self._lose_answers]),
            "client": (3.0, [self._pause, self._replace, self._zombie]),
        }
        if LOG_MOVER in self._cast.slots:
            kinds["folders"] = (4.0, self._of_brokers.of_folders)
        ensemble = self._cluster.ensemble
        if ensemble is not None:
            # One broker after the other, and sometimes several at a time.
            kinds["broker too"] = (5.0, self._of_brokers.kinds)
            kinds["cluster"] = (8.0, self._of_brokers.of_several)
            kinds["between brokers"] = (4.0, [self._cut_brokers, self._slow_brokers, self._reset_brokers])
            of_ensemble = EnsembleFaults(self._stage, ensemble)
            kinds["ensemble"] = (4.0, of_ensemble.kinds)
            self._stage.hold_back = of_ensemble.hold_back
            unsettled = UnsettledProposals(self._stage, self._cluster, ensemble)
            kinds["unsettled"] = (6.0, [unsettled.unsettle])
            if COPY in self._cast.slots:
                kinds["stranded"] = (2.0, [partial(self._strand, ensemble)])
            if any(slot.share_group for slot in self._cast.slots.values()):
                kinds["stranded leader"] = (1.0, [partial(self._strand_leader, ensemble)])
                kinds["dead letters"] = (2.0, [self._reset_at_letter])
            if self._stage.random("isolation").random() < _ISOLATING:
                # Most other faults would end the isolation, or make it look like another one.
                kinds = {name: kinds[name] for name in ("network", "client")}
                kinds["isolation"] = (1.0, [self._isolate])
        for name, (gap, of_kind) in kinds.items():
            self._tasks.append(
                loop.create_task(self._bring(self._stage.random(f"faults {name}"), gap, of_kind))
            )

    async def calm(self) -> None:
        """Begin no more faults, and end the current ones."""
        self._stage.hold_back = lambda random: None
        for task in self._tasks:
            task.cancel()
        for task in self._tasks:
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        ensemble = self._cluster.ensemble
        if ensemble is not None:
            ensemble.heal_all()
        self._stage.network.heal_all()
        self._stage.losing.clear()
        self._cast.resume_all()
        await self._of_brokers.mend()

    async def _bring(self, random: Random, gap: float, kinds: list[Fault]) -> None:
        while True:
            await asyncio.sleep(random.expovariate(1 / gap))
            fault = random.choice(kinds)
            named = fault.func if isinstance(fault, partial) else fault
            name = named.__name__.strip("_").replace("_", " ")
            self.counts[name] = self.counts.get(name, 0) + 1
            self._stage.trace.note(f"fault {name}")
            await fault(random)

    # --- between brokers and clients ---

    async def _cut(self, random: Random) -> None:
        one_way = random.random() < 0.5
        pairs = []
        for name in self._some(random):
            host = self._broker(random)
            pairs.append((name, host) if random.random() < 0.5 else (host, name))
        await self._cut_for_a_while(random, pairs, one_way=one_way)

    async def _slow(self, random: Random) -> None:
        await self._slow_for_a_while(
            random, [(self._broker(random), name) for name in self._some(random)], [500, 5000]
        )

    async def _reset(self, random: Random) -> None:
        for name in self._some(random):
            self._stage.network.reset(name, self._broker(random))

    async def _lose_answers(self, random: Random) -> None:
        """Reset a connection after a request has arrived: the broker executes the request, but the answer is
        lost.
        """
        for name in self._some(random):
            self._stage.losing[name] = random.randint(1, 6)
        await asyncio.sleep(random.uniform(0.5, 3.0))
        self._stage.losing.clear()

    def _some(self, random: Random) -> list[str]:
        alive = [client.name for client in self._cast.clients.values()]
        if len(self._cluster) > 1:
            alive += self._hosts
        return random.sample(alive, random.randint(1, max(1, len(alive) // 2)))

    # --- between brokers ---

    async def _cut_brokers(self, random: Random) -> None:
        """Cut one broker off from the others, or divide the cluster in two; sometimes
        in one direction only.
        """
        one_way = random.random() < 0.5
        apart = random.sample(self._hosts, random.randint(1, max(1, len(self._hosts) // 2)))
        pairs = [(one, other) for one in apart for other in self._hosts if other not in apart]
        if random.random() < 0.4:
            pairs = [random.choice(pairs)]
        if random.random() < 0.5:
            pairs = [(other, one) for one, other in pairs]
        await self._cut_for_a_while(random, pairs, one_way=one_way)

    async def _isolate(self, random: Random) -> None:
        """Cut one broker off from the others, but not from the ensemble: usually the controller."""
        active = [number for number, broker in self._cluster.running.items() if broker.controller.active]
        chosen = active if active and random.random() < 0.8 else self._stage.broker_ids
        apart = host_of(random.choice(chosen))
        others = [host for host in self._hosts if host != apart]
        for host in random.sample(others, len(others)):
            self._stage.network.cut(apart, host)
            # Else the checks of all brokers would stay in step, and end at the same time.
            await asyncio.sleep(random.uniform(0.0, 1.0))
        await asyncio.sleep(random.uniform(*_ISOLATION))
        for host in others:
            self._stage.network.heal(apart, host)

    async def _slow_brokers(self, random: Random) -> None:
        one, other = random.sample(self._hosts, 2)
        await self._slow_for_a_while(random, [(one, other)], [1000, 20_000])

    async def _reset_brokers(self, random: Random) -> None:
        one, other = random.sample(self._hosts, 2)
        self._stage.network.reset(one, other)

    @property
    def _hosts(self) -> list[str]:
        return [host_of(number) for number in self._stage.broker_ids]

    def _broker(self, random: Random) -> str:
        return host_of(random.choice(self._stage.broker_ids))

    async def _cut_for_a_while(self, random: Random, pairs: list[tuple[str, str]], *, one_way: bool) -> None:
        for pair in pairs:
            self._stage.network.cut(*pair, one_way=one_way)
        await asyncio.sleep(random.choice([random.uniform(0.1, 3.0), random.uniform(3.0, 9.0)]))
        for pair in pairs:
            self._stage.network.heal(*pair, one_way=one_way)

    async def _slow_for_a_while(
        self, random: Random, pairs: list[tuple[str, str]], speeds: list[int]
    ) -> None:
        for pair in pairs:
            self._stage.network.slow(*pair, random.choice(speeds))
        await asyncio.sleep(random.uniform(0.5, 5.0))
        for pair in pairs:
            self._stage.network.slow(*pair, None)

    # --- of clients ---

    async def _pause(self, random: Random) -> None:
        """Pause a client, sometimes for so long that its group or its transaction continues without it."""
        client = random.choice(list(self._cast.clients.values()))
        client.pause()
        await asyncio.sleep(random.choice([random.uniform(0.1, 3.0), random.uniform(6.0, 12.0)]))
        client.resume()

    async def _replace(self, random: Random) -> None:
        name = random.choice(list(self._cast.clients))
        self._cast.kill(name, silently=random.random() < 0.5)
        await asyncio.sleep(random.uniform(0.1, 3.0))
        self._cast.engage(name)

    async def _strand(self, ensemble: SimulatedEnsemble, random: Random) -> None:
        """Cut the coordinator of a copying client off from the ensemble only, and move the client away and
        back.

        The client first continues with another broker, and then starts again with the former coordinator. The
        coordinator can still reach its followers and the client.
        """
        stranded = self._cluster.leader_of_group(COPY)
        if stranded is None:
            await asyncio.sleep(0.5)
            return
        ensemble.cut(host_of(stranded))
        try:
            await asyncio.sleep(SESSION_TIMEOUT + random.uniform(0.2, 1.0))
            others = [number for number in self._stage.broker_ids if number != stranded]
            for broker, seconds in ((random.choice(others), 2.5), (stranded, 2.0)):
                self._cast.kill(COPY, silently=random.random() < 0.5)
                self._cast.engage(COPY)
                self._cast.clients[COPY].routes.confine(broker)
                await asyncio.sleep(random.uniform(0.6, 1.0) * seconds)
        finally:
            self._cast.clients[COPY].routes.release()
            ensemble.heal(host_of(stranded))

    async def _strand_leader(self, ensemble: SimulatedEnsemble, random: Random) -> None:
        """Cut the leader of a share partition off from the ensemble only, until it has a successor.

        One worker keeps to the former leader, and acknowledges late. The others find the successor.
        Sometimes what the former leader sends to other brokers arrives only after that.
        """
        workers = [client for client in self._cast.clients.values() if isinstance(client, Work)]
        busy = [
            (worker, leader, place)
            for worker in workers  # of any group: another worker of its group may have the same partition
            for leader, place in worker.held
            if self._stage.leads(leader, *place)
        ]
        if not busy:
            await asyncio.sleep(0.1)
            return
        slow, leader, place = random.choice(busy)
        slow.is_slow = True
        former = host_of(leader)
        is_held = random.random() < 0.5
        held = [(former, host) for host in self._hosts if host != former and is_held]
        ensemble.cut(former)
        try:
            await asyncio.sleep(SESSION_TIMEOUT - _HELD)
            for pair in held:
                self._stage.network.cut(*pair, one_way=True)
            await asyncio.sleep(_HELD)
            for _ in range(random.randint(4, 8) if is_held else random.randint(5, 20)):
                await asyncio.sleep(0.2)
                for worker in workers:
                    if worker is not slow:
                        worker.routes.doubt_leader(place)
        finally:
            for pair in held:
                self._stage.network.heal(*pair, one_way=True)
            ensemble.heal(former)
            slow.is_slow = False

    async def _reset_at_letter(self, random: Random) -> None:
        """Reset connections between brokers when a dead letter is in the log, without an answer yet."""
        involved = await self._of_brokers.await_letter()
        for one, other in combinations(sorted(involved), 2):
            self._stage.network.reset(host_of(one), host_of(other))

    async def _zombie(self, random: Random) -> None:
        """Pause a client, start another one in its slot, and let the first one continue."""
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
