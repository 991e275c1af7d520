"""Threads of a hanging disk make no call until the disk answers again."""

import asyncio
from random import Random

from simulation.blocking import VirtualThreads
from simulation.virtual_time import VirtualProcess, run_virtual


def test_hung_call_is_made_when_the_disk_answers_again() -> None:
    async def scenario() -> list[tuple[str, bool]]:
        seen: list[str] = []
        threads = VirtualThreads(Random(1))
        pool = threads.pool("disk", 2)
        threads.hang()
        call = pool.run(seen.append, "fsync")
        await asyncio.sleep(10)
        before = ("hung", call.done())
        threads.unhang()
        await asyncio.sleep(1)
        return [before, (seen[0], call.done())]

    assert run_virtual(scenario()) == [("hung", False), ("fsync", True)]


def test_hung_call_of_a_process_that_was_killed_is_never_made() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []
        threads = VirtualThreads(Random(1))

        async def main() -> None:
            await threads.pool("disk", 2).run(seen.append, "fsync")

        process = VirtualProcess("broker")
        threads.hang()
        process.run(main())
        await asyncio.sleep(1)
        process.kill()
        threads.unhang()
        await asyncio.sleep(1)
        return seen

    assert run_virtual(scenario()) == []
