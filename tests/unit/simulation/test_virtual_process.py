"""A process on the virtual loop ends where it is killed, and takes nobody with it."""

import asyncio
from contextvars import copy_context

import pytest

from barnabas.simulation.virtual_time import Killed, VirtualProcess, run_virtual


def test_nothing_of_a_killed_process_runs_any_more() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []
        process = VirtualProcess("broker")

        async def tick(name: str) -> None:
            while True:
                await asyncio.sleep(1)
                seen.append(name)

        async def main() -> None:
            loop = asyncio.get_running_loop()
            asyncio.create_task(tick("child"))  # noqa: RUF006
            loop.call_later(3.5, seen.append, "timer")
            loop.call_soon(loop.call_later, 4.5, seen.append, "timer of a callback")
            await tick("main")

        process.run(main())
        other = asyncio.create_task(tick("other"))
        await asyncio.sleep(2.5)
        process.kill()
        await asyncio.sleep(3)
        other.cancel()
        return seen

    assert sorted(run_virtual(scenario())) == ["child"] * 2 + ["main"] * 2 + ["other"] * 5


def test_finally_blocks_of_a_killed_process_begin_nothing() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []

        async def main() -> None:
            try:
                await asyncio.sleep(100)
            finally:
                asyncio.get_running_loop().call_soon(seen.append, "callback")
                asyncio.create_task(asyncio.sleep(0)).add_done_callback(lambda _: seen.append("task"))
                await asyncio.sleep(0)
                seen.append("awaited")

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(1)
        process.kill()
        await asyncio.sleep(1000)
        return seen

    assert run_virtual(scenario()) == []


def test_a_process_may_end_itself() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []

        async def main() -> None:
            asyncio.create_task(beside())  # noqa: RUF006
            await asyncio.sleep(1)
            current = VirtualProcess.current()
            assert current is process
            current.kill()
            raise Killed

        async def beside() -> None:
            await asyncio.sleep(2)
            seen.append("beside")

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(10)
        assert VirtualProcess.current() is None
        return seen

    assert run_virtual(scenario()) == []


def test_what_a_dead_process_waited_for_may_come() -> None:
    async def scenario() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def main() -> None:
            await future
            pytest.fail("it goes on")

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(1)
        process.kill()
        future.set_result(None)
        await asyncio.sleep(1)

    run_virtual(scenario())


def test_a_callback_from_outside_belongs_to_whose_context_it_has() -> None:
    async def scenario() -> list[VirtualProcess | None]:
        seen: list[VirtualProcess | None] = []
        contexts = []

        async def main() -> None:
            contexts.append(copy_context())

        process = VirtualProcess("broker")
        await process.run(main())
        loop = asyncio.get_running_loop()
        loop.call_soon(lambda: seen.append(VirtualProcess.current()), context=contexts[0])
        await asyncio.sleep(1)
        assert seen == [process]
        process.kill()
        loop.call_soon(lambda: seen.append(VirtualProcess.current()), context=contexts[0])
        await asyncio.sleep(1)
        return seen

    assert len(run_virtual(scenario())) == 1
