"""A classic group under random faults, from a seed.

Members crash, restart and leave. Appends are slow or fail, and the broker restarts. At all times, no
partition has two owners in one generation, and the coordinator rejects commits of earlier generations. After
the faults, the group is stable with exactly its live members.
"""

from __future__ import annotations

import asyncio
import contextlib
import random

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.errors import ErrorCode, KafkaError

PARTITIONS = range(8)
TROUBLE_SECONDS = 600
PEACE_SECONDS = 120

REJOIN = {ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION}
START_ANEW = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


class World:
    """The current broker, and its log with faults."""

    def __init__(self, groups, rng):
        self.groups = groups
        self.rng = rng
        self.log = groups.log
        self.trouble = True
        self._committing = asyncio.Lock()
        #: by generation and partition: who was told to own it
        self.owners: dict[tuple[int, int], str] = {}
        self.log.append = self._append
        self._write = groups.log._write

    def _append(self, partition, batch, epoch, now_ms):
        fate = self.rng.random() if self.trouble else 1
        if fate < 0.1:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        if fate < 0.5:
            return self._append_later(partition, batch, epoch, fails=fate < 0.2)
        self._write(partition, batch, epoch)
        return None

    async def _append_later(self, partition, batch, epoch, fails):
        # The high watermark passes one batch after another.
        async with self._committing:
            await asyncio.sleep(self.rng.choice([0.01, 0.1, 1, 7]))
        if fails or self.groups.coordinator.partitions() == []:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._write(partition, batch, epoch)

    async def restart(self):
        append, self.log.append = self.log.append, self._refuse
        self.groups = await self.groups.restart()
        self.log.append = append

    @staticmethod
    def _refuse(partition, batch, epoch, now_ms):
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)


class SimulatedMember:
    """A consumer as real clients are: it joins, syncs, sends heartbeats, commits, and
    joins again after errors.
    """

    def __init__(self, world, name, instance):
        self.world = world
        self.name = name
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.stable = False

    async def run(self):
        while True:
            try:
                await self._round()
            except KafkaError as error:
                self.stable = False
                if error.code in START_ANEW:
                    self.member_id = ""
                await asyncio.sleep(self.world.rng.choice([0.05, 0.5]))

    async def leave(self):
        if self.member_id and self.instance is None:
            await self.world.groups.leave((self.member_id, None))

    async def _round(self):
        world = self.world
        joined = self._check(
            await world.groups.join(self.member_id, instance=self.instance, client=self.name)
        )
        if joined is None:
            return
        self.generation = joined.generation_id
        parts = {}
        if joined.leader == self.member_id and not joined.skip_assignment:
            ids = sorted(member.member_id for member in joined.members)
            parts = {
                member_id: bytes(p for p in PARTITIONS if p % len(ids) == number)
                for number, member_id in enumerate(ids)
            }
        await asyncio.sleep(world.rng.choice([0, 0.01, 1]))
        synced = self._check(
            await world.groups.sync(self.member_id, self.generation, parts, instance=self.instance)
        )
        if synced is None:
            return
        self.owned = set(synced.assignment)
        for partition in self.owned:
            who = self.instance or self.member_id
            assert world.owners.setdefault((self.generation, partition), who) == who
        self.stable = True
        while self.stable:
            await asyncio.sleep(world.rng.choice([1, 3]))
            error = await world.groups.heartbeat(self.member_id, self.generation, instance=self.instance)
            self.stable = error not in REJOIN
            if error in START_ANEW:
                raise KafkaError(error)
            if self.stable and world.rng.random() < 0.3:
                await self.commit()

    async def haunt(self):
        """Commit once more when the group has continued, as a member does that was paused."""
        await asyncio.sleep(self.world.rng.choice([1, 20, 60]))
        with contextlib.suppress(KafkaError):
            await self.commit()

    async def commit(self):
        offsets = {("t", partition): self.generation for partition in self.owned}
        loop = asyncio.get_running_loop()
        asked = loop.time()
        error = await self.world.groups.commit(
            offsets, self.member_id, self.generation, instance=self.instance
        )
        # After a slow append the group may have gone on since the commit was let in.
        if offsets and error is ErrorCode.NONE and loop.time() == asked:
            group = self.world.groups.coordinator.group("g")
            assert self.generation == group.generation
            assert group.members.get(self.member_id) is not None

    def _check(self, answer):
        """Return the answer if it has no error, and store the member id that it contains."""
        code = ErrorCode(answer.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            return None
        if code in REJOIN:
            return None
        if code is not ErrorCode.NONE:
            raise KafkaError(code)
        self.member_id = getattr(answer, "member_id", self.member_id)
        return answer


async def simulate(make_groups, seed):
    rng = random.Random(seed)
    world = World(make_groups(group_initial_rebalance_delay_ms=rng.choice([0, 1000])), rng)
    loop = asyncio.get_running_loop()
    running: dict[str, tuple[SimulatedMember, asyncio.Task]] = {}
    ghosts: list[asyncio.Task] = []

    def start(name):
        instance = name if name.startswith("static") else None
        member = SimulatedMember(world, name, instance)
        running[name] = (member, loop.create_task(member.run()))

    async def stop(name, politely):
        member, task = running.pop(name)
        task.cancel()
        if politely:
            with contextlib.suppress(KafkaError):
                await member.leave()
        ghosts.append(loop.create_task(member.haunt()))

    def check_alive():
        for _, task in running.values():
            if task.done():
                task.result()
        coordinator = world.groups.coordinator
        if not coordinator.is_loading():
            members = (member for group in coordinator.loaded_groups() for member in group.members)
            protocols = (protocol for member in members for protocol in member.protocols)
            held = sum(len(protocol.name) + len(protocol.metadata) for protocol in protocols)
            assert coordinator.metadata.bytes == held

    names = ["a", "b", "c", "static-1", "static-2"]
    while loop.time() < TROUBLE_SECONDS:
        await asyncio.sleep(rng.expovariate(1 / 15))
        name = rng.choice(names)
        if rng.random() < 0.1:
            await world.restart()
        elif name in running:
            await stop(name, politely=rng.random() < 0.5)
        else:
            start(name)
        check_alive()
    world.trouble = False
    if not running:
        start("a")
    await asyncio.sleep(PEACE_SECONDS)
    check_alive()
    await asyncio.gather(*ghosts)
    members = [member for member, _ in running.values()]
    assert all(member.stable for member in members)
    assert len({member.generation for member in members}) == 1
    assert sorted(p for member in members for p in member.owned) == list(PARTITIONS)
    assert {member.member_id for member in world.groups.coordinator.group("g").members} == {
        member.member_id for member in members
    }
    for _, task in running.values():
        task.cancel()
    await world.groups.coordinator.stop()


@pytest.mark.parametrize("seed", range(25))
def test_group_survives_trouble(make_groups, seed):
    run_virtual(simulate(make_groups, seed))
