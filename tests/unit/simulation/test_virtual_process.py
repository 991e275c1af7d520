"""A process on the virtual loop ends where it is killed, and other processes continue."""

import asyncio
import gc
from collections.abc import AsyncIterator
from contextvars import copy_context

import pytest
from simulation.virtual_time import Killed, VirtualProcess, run_virtual


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


def test_a_process_that_ends_itself_waits_for_nothing_in_a_finally_block() -> None:
    """Otherwise the end of the loop would wait for it."""

    async def scenario() -> list[str]:
        seen: list[str] = []

        async def main() -> None:
            try:
                process.kill()
                raise Killed
            finally:
                await asyncio.get_running_loop().create_future()
                seen.append("awaited")

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(1)
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


@pytest.mark.parametrize("is_killed_first", [True, False])
def test_error_that_a_dead_process_would_have_been_told_is_not_reported(is_killed_first: bool) -> None:
    """Simulation seeds 254 and 260: otherwise it looks as if the broker had not read the error."""

    async def scenario() -> list[object]:
        reported: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        future: asyncio.Future[None] = loop.create_future()

        async def main(waited: asyncio.Future[None]) -> None:
            await waited

        process = VirtualProcess("broker")
        process.run(main(future))
        await asyncio.sleep(1)
        if is_killed_first:
            process.kill()
        future.set_exception(OSError("too late"))
        process.kill()
        await asyncio.sleep(1)
        del future
        gc.collect()
        return reported

    assert run_virtual(scenario()) == []


def test_errors_that_a_dead_process_had_gathered_are_not_reported() -> None:
    """gather() reads them only after the last result (simulation seed 78028)."""

    async def scenario() -> list[object]:
        reported: list[object] = []
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: reported.append(context))
        futures: list[asyncio.Future[None]] = [loop.create_future(), loop.create_future()]

        async def main() -> None:
            await asyncio.gather(*futures, return_exceptions=True)

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(1)
        futures[0].set_exception(OSError("refused"))
        await asyncio.sleep(1)
        process.kill()
        futures.clear()
        gc.collect()
        return reported

    assert run_virtual(scenario()) == []


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


def test_paused_process_does_nothing_and_goes_on_late() -> None:
    async def scenario() -> list[tuple[str, float]]:
        seen: list[tuple[str, float]] = []
        loop = asyncio.get_running_loop()

        def note(what: str) -> None:
            seen.append((what, loop.time()))

        async def main() -> None:
            loop.call_at(3, note, "timer within")
            loop.call_at(9, note, "timer behind")
            loop.call_at(4, note, "cancelled").cancel()
            for _ in range(3):
                await asyncio.sleep(1)
                note("tick")

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(1.5)
        process.pause()
        asyncio.get_running_loop().call_later(1, note, "another process")
        process.run(asyncio.sleep(0)).add_done_callback(lambda _: note("asked while it was paused"))
        await asyncio.sleep(4.5)
        process.resume()
        await asyncio.sleep(10)
        return seen

    assert sorted(run_virtual(scenario()), key=lambda seen: (seen[1], seen[0])) == [
        ("tick", 1),
        ("another process", 2.5),
        ("asked while it was paused", 6),
        ("tick", 6),
        ("timer within", 6),
        ("tick", 7),
        ("timer behind", 9),
    ]


def test_process_that_is_killed_while_paused_does_nothing_any_more() -> None:
    async def scenario() -> list[str]:
        seen: list[str] = []

        async def main() -> None:
            asyncio.get_running_loop().call_later(1, seen.append, "timer")
            await asyncio.sleep(1)
            seen.append("task")

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(0.5)
        process.pause()
        await asyncio.sleep(1)
        process.kill()
        process.resume()
        await asyncio.sleep(5)
        return seen

    assert run_virtual(scenario()) == []


def test_a_generator_that_a_killed_process_was_in_is_closed_by_nobody() -> None:
    async def scenario() -> list[str]:
        said: list[str] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: said.append(str(context)))

        async def numbers(depth: int) -> AsyncIterator[int]:
            try:
                await asyncio.sleep(100 if not depth else 0)
            finally:
                await asyncio.sleep(0)
            if depth:
                async for number in numbers(depth - 1):
                    yield number
            yield depth

        async def main() -> None:
            async for _ in numbers(3):
                pass

        process = VirtualProcess("broker")
        process.run(main())
        await asyncio.sleep(1)
        process.kill()
        gc.collect()
        await asyncio.sleep(1000)
        gc.collect()
        return said

    assert run_virtual(scenario()) == []
