"""The failure of a background task is always reported."""

import ast
import asyncio
from pathlib import Path

import pytest
from simulation.virtual_time import run_virtual

from barnabas.base.tasks import IS_VITAL, start_task, stop_tasks

BROKER = Path(__file__).parents[3] / "src" / "barnabas" / "broker"
#: their callbacks read the tasks' errors
READ_THEIR_ERRORS = {
    "coordinator/groups/modern/delayed_assignment.py",
    "coordinator/groups/consumer/regex_subscriptions.py",
    "metadata/loader.py",
}


async def fails():
    raise RuntimeError("planted")


@pytest.fixture
def reported():
    """Return the errors that the event loop's exception handler gets after `listen`."""
    return []


def listen(reported):
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))


@pytest.mark.parametrize("is_vital", [True, False])
def test_the_error_of_a_task_is_reported_though_it_is_held(reported, is_vital):
    async def main():
        listen(reported)
        task = start_task(fails(), "upkeep", is_vital=is_vital)
        await asyncio.sleep(1)
        (context,) = reported
        assert context["message"] == "the background task 'upkeep' failed"
        assert str(context["exception"]) == "planted"
        assert context[IS_VITAL] is is_vital
        await stop_tasks(task)

    run_virtual(main())


def test_a_task_that_ends_or_is_stopped_is_not_reported(reported):
    async def main():
        listen(reported)
        ended = start_task(asyncio.sleep(1), "ends")
        stopped = start_task(asyncio.sleep(100), "is stopped")
        await asyncio.sleep(2)
        await stop_tasks(ended, None, stopped)
        assert stopped.cancelled()
        assert reported == []

    run_virtual(main())


def unwatched(tree):
    """Return the lines that create a task whose errors are not reported, or a task
    that is dropped at once.
    """
    for node in ast.walk(tree):
        is_dropped = isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
        if (isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "create_task") or (
            is_dropped and ast.unparse(node.value.func) in {"asyncio.ensure_future", "asyncio.gather"}
        ):
            yield node.lineno


def test_a_broker_makes_no_task_whose_error_is_not_reported():
    found = [
        f"{name}:{line}"
        for path in sorted(BROKER.rglob("*.py"))
        if (name := path.relative_to(BROKER).as_posix()) not in READ_THEIR_ERRORS
        for line in unwatched(ast.parse(path.read_text()))
    ]
    assert not found, "start these by barnabas.base.tasks.start_task:\n" + "\n".join(found)


@pytest.mark.parametrize(
    "code", ["asyncio.create_task(f())", "x = self._loop.create_task(f())", "asyncio.ensure_future(f())"]
)
def test_the_check_finds_what_it_looks_for(code):
    assert list(unwatched(ast.parse(code)))
