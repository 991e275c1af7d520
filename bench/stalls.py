"""Runs a broker that counts the long turns of its event loop, and reports what ran in them.

    python -m bench.stalls REPORT start --data DIRECTORY ...

This runs `barnabas start`. The broker starts to count at a SIGUSR1, and at the next one writes the REPORT
(JSON). A timer of one millisecond measures how late the event loop calls it, which is how long the loop did
nothing else. The time in which the thread waited for a core is subtracted, because another process used it.

While the timer is late, another thread samples the stack. The report has these samples, and the time of
Python's garbage collector. On a machine with other work, use the CPU time of a turn: other processes can
take the whole core away.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import signal
import sys
import threading
from asyncio import runners
from collections import Counter, deque
from collections.abc import Coroutine
from pathlib import Path
from time import perf_counter, thread_time
from types import FrameType
from typing import Any, TypeVar

from barnabas import cli
from barnabas.base.system import event_loop

T = TypeVar("T")

BEAT = 0.001
#: a turn that takes longer, in seconds, is a stall
LONG = 0.005
#: the timer is this late when the stack is looked at
SUSPECT = 0.003
#: where a thread of a pool waits for work
IDLE_THREAD = "thread._worker"
#: the longest stalls that are reported with what ran in them
MAX_REPORTED = 40


class StallCounter:
    """Monitors the event loop of the current thread, from `start` to `stop`."""

    def __init__(self) -> None:
        self._thread_id = threading.get_ident()
        self._schedstat = os.open(f"/proc/self/task/{threading.get_native_id()}/schedstat", os.O_RDONLY)
        self._turns: Counter[int] = Counter()
        #: how late the timer was and what CPU time the thread took meanwhile, in ms; what was seen of it
        self._stalls: list[tuple[float, float, list[str]]] = []
        self._longest_cpu = 0.0
        self._seen: deque[str] = deque(maxlen=8)
        self._collecting = 0.0
        self._due = 0.0
        self._waited = 0.0
        self._cpu = 0.0
        self._stopped = threading.Event()

    def start(self) -> None:
        self._loop = asyncio.get_running_loop()
        gc.callbacks.append(self._collected)
        threading.Thread(target=self._sample, name="stall sampler", daemon=True).start()
        self._schedule()

    def stop(self) -> dict[str, object]:
        """Return the number of turns by their duration in milliseconds (rounded down), and the stacks of the
        longest ones.
        """
        self._stopped.set()
        gc.callbacks.remove(self._collected)
        self._stalls.sort(key=lambda stall: stall[0], reverse=True)
        return {
            "longest_ms": self._stalls[0][0] if self._stalls else float(max(self._turns, default=0)),
            "stalls": len(self._stalls),
            "longest_cpu_ms": self._longest_cpu,
            "cpu_stalls": sum(cpu > 1000 * LONG for _, cpu, _ in self._stalls),
            "turns_by_ms": dict(sorted(self._turns.items())),
            "longest": self._stalls[:MAX_REPORTED],
        }

    def _schedule(self) -> None:
        self._waited = self._waited_for_core()
        self._cpu = thread_time()
        self._due = perf_counter() + BEAT
        self._loop.call_later(BEAT, self._beat)

    def _beat(self) -> None:
        if self._stopped.is_set():
            return
        late = perf_counter() - self._due - (self._waited_for_core() - self._waited)
        self._turns[max(0, int(late * 1000))] += 1
        cpu = round((thread_time() - self._cpu) * 1000, 1)
        self._longest_cpu = max(cpu, self._longest_cpu)
        if late > LONG:
            self._stalls.append((round(late * 1000, 1), cpu, list(self._seen)))
        self._seen.clear()
        self._schedule()

    def _waited_for_core(self) -> float:
        """Return the seconds in which this thread could run but had no core."""
        return int(os.pread(self._schedstat, 100, 0).split()[1]) / 1e9

    def _collected(self, phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() != self._thread_id:
            return
        if phase == "start":
            self._collecting = perf_counter()
        elif (took := perf_counter() - self._collecting) > BEAT:
            self._seen.append(f"garbage collection {info['generation']}: {took * 1000:.1f} ms")

    def _sample(self) -> None:
        while not self._stopped.wait(BEAT):
            if perf_counter() - self._due > SUSPECT:
                frames = sys._current_frames()
                loop = frames.pop(self._thread_id)
                if loop.f_code.co_filename != runners.__file__:
                    self._seen.append(_described(loop))
                    continue
                # no callback runs: another thread has the interpreter, or the system the loop's
                del frames[threading.get_ident()]
                others = [_described(frame) for frame in frames.values()]
                busy = [other for other in others if not other.startswith(IDLE_THREAD)]
                self._seen.append(f"the loop itself, beside {busy}")


def _described(frame: FrameType | None) -> str:
    """Return a text with the innermost functions on the stack, the innermost first."""
    names: list[str] = []
    while frame is not None and len(names) < 7:
        names.append(f"{Path(frame.f_code.co_filename).stem}.{frame.f_code.co_name}:{frame.f_lineno}")
        frame = frame.f_back
    return " < ".join(names)


async def _watched(main: Coroutine[Any, Any, T], report: Path) -> T:
    counter: StallCounter | None = None

    def switch() -> None:
        nonlocal counter
        if counter is None:
            counter = StallCounter()
            counter.start()
        else:
            partial = report.with_suffix(".partial")
            partial.write_text(json.dumps(counter.stop(), indent=1))
            partial.rename(report)
            counter = None

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, switch)
    return await main


def main() -> None:
    report = Path(sys.argv.pop(1))
    run = event_loop.run
    event_loop.run = lambda main: run(_watched(main, report))
    cli.main()


if __name__ == "__main__":
    main()
