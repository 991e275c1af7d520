"""The event loop of a broker: uvloop where it can be imported, else asyncio's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:  # Windows, PyPy
    uvloop = None

_T = TypeVar("_T")

new_event_loop: Callable[[], asyncio.AbstractEventLoop] = (
    asyncio.new_event_loop if uvloop is None else uvloop.new_event_loop
)


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` to its end on a new event loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def turns_are_cheap(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether an empty turn of the loop costs about a microsecond, as busy polling requires."""
    return uvloop is not None and isinstance(loop, uvloop.Loop)
