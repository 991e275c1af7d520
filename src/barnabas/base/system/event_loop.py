"""The event loop of a broker: uvloop if it can be imported, otherwise asyncio's."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

try:
    import uvloop
except ImportError:  # Windows, PyPy
    uvloop = None

_T = TypeVar("_T")

new_event_loop: Callable[[], asyncio.AbstractEventLoop]
if uvloop is None:
    new_event_loop = asyncio.new_event_loop
else:

    class _Loop(uvloop.Loop):  # type: ignore[misc]  # uvloop says nothing of its types
        """The event loop of uvloop. It can also be closed during the TLS handshake of a connection."""

        def close(self) -> None:
            try:
                super().close()
            except OSError as error:  # no code has a reference to such a connection to close it
                if error.errno != errno.EBUSY:
                    raise

    new_event_loop = _Loop


def run(main: Coroutine[Any, Any, _T]) -> _T:
    """Run `main` to its end on a new event loop, and return its result."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


def turns_are_cheap(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether a turn of the loop without ready callbacks takes only about a microsecond.

    Busy polling, which runs such turns instead of a wait, requires this.
    """
    return uvloop is not None and isinstance(loop, uvloop.Loop)
