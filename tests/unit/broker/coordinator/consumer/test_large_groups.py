"""Groups of thousands of members: no turn of the event loop is long, and a few heartbeats are enough."""

from __future__ import annotations

import asyncio
import gc
import threading
import time
from asyncio import events

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.environment.blocking import Threads
from barnabas.base.errors import ErrorCode
from barnabas.broker.coordinator import ConsumerGroupState
from barnabas.broker.coordinator.groups.modern.delayed_assignment import interval_without_partitions
from barnabas.broker.server.garbage import short_collections

MEMBERS = 2000
TOPICS = {f"topic-{number}": 100 for number in range(100)}
#: in seconds, for all turns but a few
LONGEST_TURN = 0.01
FEW = 4


class Turns:
    """Measures the callbacks of this thread's event loop in CPU time, without garbage collections."""

    def __init__(self, monkeypatch):
        self._seconds = []
        original, thread, collecting = events.Handle._run, threading.get_ident(), 0.0

        def collected(phase, _info):
            nonlocal collecting
            if threading.get_ident() == thread:
                collecting += time.thread_time() * (1 if phase == "stop" else -1)

        gc.callbacks.append(collected)
        self.stop = lambda: gc.callbacks.remove(collected)

        def run(handle):
            began = time.thread_time() - collecting
            original(handle)
            self._seconds.append(time.thread_time() - collecting - began)

        monkeypatch.setattr(events.Handle, "_run", run)

    def check(self, what):
        """Check the longest callbacks. On a busy machine, a few of thousands can
        include the kernel's own work.
        """
        worst = sorted(self._seconds, reverse=True)
        print(f"{what}: {len(worst)} turns, the longest {[round(1000 * s, 1) for s in worst[:5]]} ms")
        assert worst[FEW] < LONGEST_TURN
        assert worst[0] < 10 * LONGEST_TURN
        self._seconds = []


class Member:
    """A consumer that takes and gives up partitions at once."""

    def __init__(self, groups, told, name):
        self._groups, self._told = groups, told
        self.name = name
        self.epoch = 0
        self.owned: dict[str, list[int]] = {}

    async def beat(self):
        if self.epoch == 0:
            answer = await self._groups.enter(self.name, *TOPICS)
        else:
            answer = await self._groups.beat(self.name, self.epoch, self.owned)
        assert answer.error_code == 0
        self.epoch = answer.member_epoch
        told = self._told(answer)
        if told is not None:
            self.owned = told


async def beat_at_once(members):
    """Send a heartbeat of each member, in its own callback, as from its own connection."""
    loop = asyncio.get_running_loop()
    left = len(members)
    done = loop.create_future()

    def begin(member):
        asyncio.ensure_future(member.beat()).add_done_callback(ended)

    def ended(task):
        nonlocal left
        left -= 1
        if task.exception() is not None and not done.done():
            done.set_exception(task.exception())
        elif not left and not done.done():
            done.set_result(None)

    for number, member in enumerate(members):
        loop.call_soon(begin, member)
        if number % 200 == 0:
            await asyncio.sleep(0)  # the test's own turns are short, too
    await done


async def settled(members, group):
    """Send heartbeats of all members until all have the target of the last epoch."""
    while {member.epoch for member in members} != {group().epoch}:
        await beat_at_once(members)
        await asyncio.sleep(0.05)


class HeldPool:
    """Computes at once. The result comes after `release`."""

    def __init__(self):
        self._is_released = asyncio.Event()

    async def run(self, work, *arguments):
        result = work(*arguments)
        await self._is_released.wait()
        return result

    def release(self):
        self._is_released.set()


def test_target_of_a_deleted_group_is_not_stored_in_the_new_group_of_its_name(make_groups, told):
    """The new group has the same epochs. With the assignment epoch stored, its member would wait in vain."""

    async def scenario():
        pool = HeldPool()
        groups = make_groups(assigning=pool)
        groups.topics(t=600)
        await groups.enter("former", "t")
        await asyncio.sleep(1)
        await groups.beat("former", -1)
        assert await groups.delete() is ErrorCode.NONE
        epoch = (await groups.enter("new", "t")).member_epoch
        pool.release()
        assigned = None
        for _ in range(10):
            await asyncio.sleep(1)
            answer = await groups.beat("new", epoch)
            epoch, assigned = answer.member_epoch, told(answer) or assigned
        assert assigned == {"t": list(range(600))}
        await groups.coordinator.stop()

    run_virtual(scenario())


@pytest.mark.timeout(300)
def test_two_thousand_members_that_join_at_once_share_few_rounds_of_short_turns(
    make_groups, told, monkeypatch
):
    async def scenario():
        thread = Threads().pool("assigning", 1)
        groups = make_groups(assigning=thread)
        groups.topics(**TOPICS)
        members = [Member(groups, told, f"member-{number:04}") for number in range(MEMBERS)]
        await groups.enter("first", *TOPICS, group="other")  # codecs are compiled when they are used first
        await asyncio.sleep(0.5)
        turns = Turns(monkeypatch)
        await beat_at_once(members)
        turns.check("joining")
        group = groups.consumer_group
        await settled(members, group)
        turns.check("settling")
        assert group().state is ConsumerGroupState.STABLE
        assert {sum(map(len, member.owned.values())) for member in members} == {5}
        places = {(t, p) for member in members for t, ps in member.owned.items() for p in ps}
        assert len(places) == 100 * 100

        # One leaves: what it had goes to others, and all the rest stays.
        before = {member.name: member.owned for member in members}
        gone = members.pop()
        await groups.beat(gone.name, -1)
        await settled(members, group)
        turns.check("after one has left")
        moved = [member for member in members if member.owned != before[member.name]]
        assert len(moved) <= 5
        turns.stop()
        await groups.coordinator.stop()
        await thread.close()

    with short_collections() as collections:  # as a broker has it
        collections.begin()
        asyncio.run(asyncio.wait_for(scenario(), 280))


def test_the_first_member_of_a_large_group_has_its_partitions_soon(make_groups, told, coordinate):
    async def scenario(groups):
        groups.topics(**TOPICS)
        joined = await groups.enter("a", *TOPICS)
        assert (joined.error_code, joined.member_epoch, told(joined)) == (0, 1, {})
        assert joined.heartbeat_interval_ms <= 500
        await asyncio.sleep(joined.heartbeat_interval_ms / 1000)
        answer = await groups.beat("a", joined.member_epoch, {})
        assert sum(map(len, told(answer).values())) == 10_000
        assert answer.heartbeat_interval_ms == groups.config.group_consumer_heartbeat_interval_ms

    coordinate(scenario)


def test_members_that_join_one_after_the_other_get_one_target_and_give_up_nothing(
    make_groups, told, coordinate
):
    async def scenario(groups):
        groups.topics(**TOPICS)
        members = [Member(groups, told, f"member-{number:02}") for number in range(20)]
        for member in members:
            await member.beat()
            await asyncio.sleep(0.08)
        await members[0].beat()
        assert members[0].owned == {}
        await asyncio.sleep(0.5)
        for member in members:
            await member.beat()
        assert {sum(map(len, member.owned.values())) for member in members} == {500}
        assert {member.epoch for member in members} == {groups.consumer_group().epoch}

    coordinate(scenario)


@pytest.mark.parametrize(("members", "soon_ms"), [(1, 500), (1_000, 500), (4_000, 2_000), (20_000, 5_000)])
def test_waiting_members_send_no_more_than_two_thousand_heartbeats_a_second(members, soon_ms):
    assert interval_without_partitions(5_000, members) == soon_ms


def test_a_large_group_that_changes_all_the_time_gets_a_target_after_two_seconds(
    make_groups, told, coordinate
):
    async def scenario(groups):
        groups.topics(**TOPICS)
        first, *others = [Member(groups, told, f"member-{number:02}") for number in range(40)]
        await first.beat()
        for member in others[:30]:
            await asyncio.sleep(0.08)
            await member.beat()
        await first.beat()
        assert first.owned

    coordinate(scenario)


def test_a_static_member_that_restarts_during_a_round_gets_the_target_computed_for_it(
    make_groups, told, coordinate
):
    async def scenario(groups):
        groups.topics(**TOPICS)
        await groups.enter("a-1", *TOPICS, instance_id="a")
        await groups.beat("a-1", -2, instance_id="a")  # it will be back
        joined = await groups.enter("a-2", *TOPICS, instance_id="a")
        await asyncio.sleep(0.5)
        answer = await groups.beat("a-2", joined.member_epoch, {}, instance_id="a")
        assert sum(map(len, told(answer).values())) == 10_000

    coordinate(scenario)
