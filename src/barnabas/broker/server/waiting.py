"""Waiting for one of several things."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


async def first(*waits: Coroutine[Any, Any, object]) -> None:
    """Wait for the first of several to return or raise."""
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
    for task in done:
        task.result()
