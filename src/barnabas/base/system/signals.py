"""Handles the signals that ask a process to stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine
from types import FrameType
from typing import Any

#: Ctrl-C and SIGTERM; on Windows Ctrl-Break too, the only one that another process can send there
STOP_SIGNALS: tuple[signal.Signals, ...] = (
    signal.SIGTERM,
    signal.SIGINT,
    *((signal.SIGBREAK,) if hasattr(signal, "SIGBREAK") else ()),
)


def handle_stop_signals(loop: asyncio.AbstractEventLoop, handle: Callable[[int], object]) -> None:
    """Call `handle` on the event loop with the number of each of `STOP_SIGNALS`. Only for the main thread."""
    for number in STOP_SIGNALS:
        _handle(loop, number, handle)


def run_until_signal(main: Coroutine[Any, Any, None]) -> None:
    """Run `main` on a new event loop until it ends, or cancel it at the first of `STOP_SIGNALS`."""

    async def until_signal() -> None:
        running = asyncio.ensure_future(main)
        handle_stop_signals(asyncio.get_running_loop(), lambda number: running.cancel())
        with contextlib.suppress(asyncio.CancelledError):
            await running

    asyncio.run(until_signal())


def handle_reload_signal(loop: asyncio.AbstractEventLoop, handle: Callable[[], object]) -> None:
    """Call `handle` on the event loop at each SIGHUP. Only for the main thread.

    Does nothing in a process with a terminal. There SIGHUP means that the terminal has closed, and ends the
    process.
    """
    if hasattr(signal, "SIGHUP") and not (sys.stdin is not None and sys.stdin.isatty()):
        _handle(loop, signal.SIGHUP, lambda number: handle())


def _handle(loop: asyncio.AbstractEventLoop, number: signal.Signals, handle: Callable[[int], object]) -> None:
    def forward(number: int, frame: FrameType | None) -> None:
        if loop.is_closed():
            signal.signal(number, signal.SIG_DFL)
            signal.raise_signal(number)
        else:
            loop.call_soon_threadsafe(handle, number)

    try:
        loop.add_signal_handler(number, handle, int(number))
    except NotImplementedError:  # asyncio's on Windows
        signal.signal(number, forward)


def stop_this_process() -> None:
    """Ask this process to stop, as SIGTERM does. Any thread can call it."""
    if os.name == "nt":  # os.kill would end it at once
        signal.raise_signal(signal.SIGTERM)
    else:
        os.kill(os.getpid(), signal.SIGTERM)


def stop_with_stdin() -> None:
    """Watch stdin in a thread. When stdin ends, ask this process to stop: its parent process has ended."""

    def wait() -> None:
        with contextlib.suppress(OSError, ValueError):
            sys.stdin.read()
        stop_this_process()

    threading.Thread(target=wait, name="barnabas-stdin", daemon=True).start()
