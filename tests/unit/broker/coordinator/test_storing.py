"""While the log accepts no records, no client can cause a busy loop or flood the log. Afterwards the group
continues.
"""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.coordinator.groups.consumer import regex_subscriptions as regexes

FULL = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "no space left on device")

#: attempts of one group in a minute, with pauses of 0.1, 0.2 ... 5 s
A_MINUTE = 20


async def eager(groups, member_id, turns):
    """Play a client that repeats its request at once after each error. Return its assignment."""
    for _ in range(turns):
        try:
            joined = await groups.join(member_id)
            parts = {member.member_id: b"part" for member in joined.members}
            synced = await groups.sync(member_id, joined.generation_id, parts)
        except KafkaError:
            continue
        if synced.error_code == 0:
            return synced.assignment
    return None


def test_group_that_cannot_store_its_assignment_rebalances_with_growing_pauses(coordinate, caplog):
    caplog.set_level(logging.INFO)

    async def scenario(groups):
        members, generation = await groups.stable(2)
        groups.log.failure = FULL
        started, groups.log.attempts = asyncio.get_running_loop().time(), 0
        clients = [asyncio.ensure_future(eager(groups, member, 200)) for member in members]
        await asyncio.sleep(60)
        assert not any(client.done() for client in clients)  # else they were let spin
        assert 5 < groups.log.attempts < A_MINUTE
        assert groups.coordinator.group("g").generation < generation + A_MINUTE
        assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
        assert len([r for r in caplog.records if "rebalancing" in r.message]) <= 3
        groups.log.failure = None
        assert await asyncio.gather(*clients) == [b"part", b"part"]
        assert asyncio.get_running_loop().time() - started < 70
        assert groups.state() == "Stable"

    coordinate(scenario)


def test_new_group_that_cannot_store_its_first_assignment_says_so_at_once(coordinate, caplog):
    async def scenario(groups):
        member, join = await groups.new_member()
        generation = (await join).generation_id
        groups.log.failure = FULL
        await groups.error(groups.sync(member, generation))
        (warning,) = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
        assert "group g" in warning and "no space left" in warning

    coordinate(scenario)


def test_group_that_failed_once_rebalances_without_a_pause_when_it_can_store_again(coordinate):
    async def scenario(groups):
        members, _ = await groups.stable(1)
        groups.log.failure = FULL
        client = asyncio.ensure_future(eager(groups, members[0], 50))
        await asyncio.sleep(30)
        groups.log.failure = None
        assert await client == b"part"
        at = asyncio.get_running_loop().time()
        assert await eager(groups, members[0], 1) == b"part"
        assert asyncio.get_running_loop().time() == at

    coordinate(scenario)


def test_member_that_joins_during_the_pause_does_not_end_it(coordinate):
    async def scenario(groups):
        members, _ = await groups.stable(1)
        groups.log.failure = FULL
        client = asyncio.ensure_future(eager(groups, members[0], 20))
        await asyncio.sleep(20)
        now = groups.coordinator.group("g").generation
        for _ in range(10):
            first = await groups.join()
            groups.join(first.member_id, rebalance=1)
        await asyncio.sleep(0.01)
        assert groups.coordinator.group("g").generation <= now + 1
        groups.log.failure = None
        client.cancel()

    coordinate(scenario)


def test_static_members_that_allow_no_time_to_rebalance_do_not_make_the_group_spin(coordinate):
    async def scenario(groups):
        joined = await groups.join(instance="i", rebalance=1, session=60_000)
        await groups.sync(joined.member_id, joined.generation_id, {}, instance="i")
        steps = 0
        write = groups.coordinator.write_unattended

        def counted(*args):
            nonlocal steps
            steps += 1
            assert steps < 1000
            write(*args)

        groups.coordinator.write_unattended = counted
        newcomer = await groups.join(rebalance=1)
        groups.join(newcomer.member_id, rebalance=1)
        await groups.leave((newcomer.member_id, None))
        assert groups.state() == "PreparingRebalance"
        await asyncio.sleep(30)
        assert 10 < steps < 100

    coordinate(scenario)


def test_member_of_a_consumer_group_that_cannot_be_fenced_is_tried_with_growing_pauses(coordinate, caplog):
    caplog.set_level(logging.INFO)

    async def scenario(groups):
        groups.topics(t=2)
        for member in ("a", "b"):
            await groups.enter(member, "t")
        groups.log.failure = FULL
        await asyncio.sleep(45)  # the session timeout
        groups.log.attempts = 0
        await asyncio.sleep(60)
        assert 10 < groups.log.attempts < 2 * A_MINUTE
        assert not [r for r in caplog.records if "was removed" in r.message]
        assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) <= 2
        groups.log.failure = None
        await asyncio.sleep(6)
        assert not groups.consumer_group().members
        assert len([r for r in caplog.records if "was removed" in r.message]) == 2

    coordinate(scenario)


@pytest.mark.parametrize("fails", ["storing", "looking up"])
def test_regular_expression_is_not_looked_up_by_every_heartbeat_while_that_fails(
    coordinate, monkeypatch, caplog, fails
):
    resolve = regexes.resolve
    lookups = 0

    async def counted(*args):
        nonlocal lookups
        lookups += 1
        if fails == "looking up" and broken:
            raise RuntimeError("no memory")
        return await resolve(*args)

    monkeypatch.setattr(regexes, "resolve", counted)
    broken = True

    async def scenario(groups):
        nonlocal broken
        groups.topics(t1=1, t2=1)
        groups.log.hold = fails == "storing"
        entered = groups.enter("a", regex="t.*")
        await asyncio.sleep(0)
        if groups.log.hold:
            groups.log.commit_next()  # the member itself is stored, what it matches is not
            groups.log.hold, groups.log.failure = False, FULL
        epoch = (await entered).member_epoch
        for _ in range(600):
            await asyncio.sleep(0.1)
            await groups.error(groups.beat("a", epoch))
        assert 5 < lookups < A_MINUTE
        assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) <= 2
        broken, groups.log.failure = False, None
        for _ in range(60):
            await asyncio.sleep(0.1)
            epoch = (await groups.beat("a", epoch)).member_epoch
        assert groups.consumer_group().regexes["t.*"].topics == {"t1", "t2"}

    coordinate(scenario)


def test_expiry_that_cannot_be_stored_is_one_warning_a_minute_for_all_groups(coordinate, caplog):
    async def scenario(groups):
        for number in range(50):
            await groups.commit({("t", 0): 1}, group=f"g{number}")
        await asyncio.sleep(8 * 86_400)
        groups.log.failure = FULL
        await groups.coordinator.expire()
        await asyncio.sleep(61)
        await groups.coordinator.expire()
        warnings = [r.message for r in caplog.records if r.levelno >= logging.WARNING]
        assert len(warnings) == 2
        assert "no space left" in warnings[0] and "__consumer_offsets-0" in warnings[0]
        assert "49 more" in warnings[1]
        groups.log.failure = None
        await groups.coordinator.expire()
        assert groups.coordinator.groups() == []

    coordinate(scenario)
