"""The client processes that measure share groups: see `bench.driver`, which runs them."""

from __future__ import annotations

import asyncio
import sys
import time
import uuid
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from confluent_kafka import Producer, ShareConsumer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from bench.descriptors import allow_descriptors
from bench.figures import Figures, percentiles_ms
from bench.share_members import Group, Session, count, settled

#: within which the records of a run are accepted, and within which nothing may be accepted
RUN_SECONDS = 80.0
IDLE_SECONDS = 15.0
RECORD = bytes(100)


def share_drain(bootstrap: str, topic: str, members: int, records: int) -> Figures:
    """Accept all `records` of a topic, from the first fetch until the last acceptance was answered.

    It says `ready` when the group has settled.
    """
    return _run(_drain(bootstrap, topic, members, records))


def share_paced(bootstrap: str, topic: str, members: int, records: int, uncounted: int) -> Figures:
    """Accept the records of `bench.driver.paced`: from handed over until the acceptance was answered.

    Members accept before they fetch again, as workers do that commit. The first `uncounted` records do not
    count. It says `ready` when the members' first fetches wait.
    """
    return _run(_paced(bootstrap, topic, members, records, uncounted))


def share_in_flight(bootstrap: str, topic: str, members: int, partitions: int, records: int) -> Figures:
    """Acquire `records` in each of the topic's partitions, and keep them; then accept and release in turn.

    It writes the records first. It says `ready` when the group has settled and when all records are acquired,
    and each time goes on when it reads a line. Released records come again and are accepted.
    """
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 20})
    for number in range(partitions * records):
        producer.produce(topic, RECORD, partition=number % partitions)
        if number % 10_000 == 0:
            producer.flush(RUN_SECONDS)
    if producer.flush(RUN_SECONDS):
        raise RuntimeError("the broker did not take the records")
    return _run(_in_flight(bootstrap, topic, members, partitions * records))


def share_settle(bootstrap: str, topic: str, members: int) -> Figures:
    """From the first heartbeat of a new group until all members have one epoch, and partitions.

    It says `ready` then, and ends when its input does.
    """
    return _run(_settle(bootstrap, topic, members))


def share_library(bootstrap: str, topic: str, records: int) -> Figures:
    """Accept all `records` by one share consumer of librdkafka, from its first poll."""
    group = f"bench-{uuid.uuid4()}"
    earliest = ConfigEntry("share.auto.offset.reset", "earliest", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.GROUP, group, incremental_configs=[earliest])
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for altered in admin.incremental_alter_configs([resource]).values():
        altered.result(30)
    consumer = ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group})
    consumer.subscribe([topic])
    received, began, last = 0, 0.0, time.monotonic()
    while received < records:
        messages = consumer.poll(1.0)
        now = time.monotonic()
        if len(messages):
            if not began:  # joining is not what is measured
                began = now
            received, last = received + len(messages), now
        elif now - last > IDLE_SECONDS:
            raise RuntimeError(f"only {received} of {records} records came back")
    consumer.commit_sync()
    elapsed = time.monotonic() - began
    consumer.close()
    return {"records/s": records / elapsed}


def _run(members: Coroutine[Any, Any, Figures]) -> Figures:
    figures: Figures = uvloop.run(members)
    return figures


async def _drain(bootstrap: str, topic: str, members: int, records: int) -> Figures:
    async with _sessions(bootstrap, topic, members) as (group, sessions):
        print("ready", flush=True)
        began = time.monotonic()
        await _until_accepted(group, records, [session.work() for session in sessions])
        return {"records/s": records / (time.monotonic() - began)}


async def _paced(bootstrap: str, topic: str, members: int, records: int, uncounted: int) -> Figures:
    async with _sessions(bootstrap, topic, members) as (group, sessions):
        for session in sessions:
            await session.fetch({}, max_wait_ms=0)
        print("ready", flush=True)
        await _until_accepted(group, records, [session.commit() for session in sessions])
        return percentiles_ms(group.latencies[uncounted:])


async def _in_flight(bootstrap: str, topic: str, members: int, records: int) -> Figures:
    async with _sessions(bootstrap, topic, members) as (group, sessions):
        await _wait_for_line()
        began = time.monotonic()
        enough = asyncio.Event()
        acquiring = [asyncio.create_task(session.acquire(enough)) for session in sessions]
        while (held := sum(count(session.held) for session in sessions)) < records:
            if time.monotonic() - began > RUN_SECONDS:
                raise RuntimeError(f"only {held} of {records} records were acquired")
            await asyncio.sleep(0.01)
        acquired = time.monotonic() - began
        enough.set()
        await asyncio.gather(*acquiring)
        await _wait_for_line()
        began = time.monotonic()
        await asyncio.gather(*(session.accept_and_release() for session in sessions))
        await _until_accepted(group, records, [session.work() for session in sessions])
        return {"acquired/s": records / acquired, "accepted/s": records / (time.monotonic() - began)}


async def _wait_for_line() -> None:
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)


async def _settle(bootstrap: str, topic: str, members: int) -> Figures:
    allow_descriptors(2 * members)
    async with settled(bootstrap, topic, members) as (_, _, elapsed):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.read)
    return {"s": elapsed}


@asynccontextmanager
async def _sessions(
    bootstrap: str, topic: str, members: int
) -> AsyncIterator[tuple[Group, Sequence[Session]]]:
    """A settled group with the share sessions of its members."""
    async with settled(bootstrap, topic, members) as (group, everybody, _):
        opened = [await member.sessions() for member in everybody]
        yield group, [session for sessions in opened for session in sessions]


async def _until_accepted(group: Group, records: int, work: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run `work` until the group has accepted `records`, exactly.

    Raises:
        RuntimeError: an error of `work`, more or fewer records.
    """
    tasks = [asyncio.create_task(each) for each in work]
    began = last = time.monotonic()
    accepted = group.accepted
    try:
        while group.accepted < records:
            done, _ = await asyncio.wait(tasks, timeout=0.002, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
            now = time.monotonic()
            if group.accepted > accepted:
                accepted, last = group.accepted, now
            elif now - last > IDLE_SECONDS or now - began > RUN_SECONDS:
                raise RuntimeError(f"only {group.accepted} of {records} records were accepted")
    finally:
        await _end(tasks)
    if group.accepted != records:
        raise RuntimeError(f"{group.accepted} records were accepted, and there are {records}")


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
