"""Runs tasks in the background. The event loop's exception handler receives all their errors.

Asyncio alone reports a task's error only when the garbage collector frees the task. Asyncio reports nothing
while an object refers to the task, and nothing after other code has awaited the task.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any, TypeVar

T = TypeVar("T")

#: whether the process must stop, in the context that the exception handler of the event loop gets
IS_VITAL = "is_vital"


def start_task(work: Coroutine[Any, Any, T], name: str, *, is_vital: bool = False) -> asyncio.Task[T]:
    """Start a task in the background. If an error ends it, the event loop's exception handler gets the error.

    Args:
        work: the coroutine to run.
        name: the task's name in error reports.
        is_vital: whether the process must stop if the task fails. The exception handler receives this value
            in its context, by the key `IS_VITAL`.
    """
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(partial(_report, is_vital))
    return task


async def stop_tasks(*tasks: asyncio.Task[Any] | None) -> None:
    """Cancel tasks, and wait until all have ended. Ignores None: a task that did not start."""
    started = [task for task in tasks if task is not None]
    for task in started:
        task.cancel()
    await asyncio.gather(*started, return_exceptions=True)


async def first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait until the first of several coroutines ends, and cancel the others, without a wait for their end.

    If the coroutine that ended first has failed, raise its error.
    """
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()


def _report(is_vital: bool, task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        message = f"the background task {task.get_name()!r} failed"
        task.get_loop().call_exception_handler(
            {"message": message, "exception": error, "task": task, IS_VITAL: is_vital}
        )
