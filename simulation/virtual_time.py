"""An event loop whose time passes only when no callback is ready to run: timers fire at once, in order.

So a test of timeouts takes no time, and runs the same way each time. Real sockets and threads cannot be used.
If all tasks wait for something that is neither a timer nor a ready callback, the loop reports a deadlock.

A `VirtualProcess` is one of many processes on such a loop. A test can kill it, as the system kills a process:
its code no longer runs, and its `finally` blocks start nothing. The other processes continue.
"""

from __future__ import annotations

import asyncio
import heapq
import selectors
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar
from weakref import ref

T = TypeVar("T")

#: the process that what runs now belongs to; None for the test or the simulation itself
_current: ContextVar[VirtualProcess | None] = ContextVar("virtual process", default=None)

_NO_PROCESS = Context()

#: a coroutine may await in its `finally` blocks when it is closed: so many times it is closed again
_CLOSINGS = 10

#: a process with at least this number of tasks forgets the tasks that have ended
_FEW_TASKS = 64


class Deadlock(RuntimeError):
    """No callback is ready and no timer is set, so the coroutine under test would never finish."""


class Killed(BaseException):
    """Ends the current code of a process that has killed itself."""


class _VirtualSelector(selectors.BaseSelector):
    """A selector that never reports a ready file."""

    def __init__(self) -> None:
        self._real = selectors.DefaultSelector()  # holds the loop's own wake-up pipe

    def register(self, fileobj: Any, events: int, data: Any = None) -> selectors.SelectorKey:
        return self._real.register(fileobj, events, data)

    def unregister(self, fileobj: Any) -> selectors.SelectorKey:
        return self._real.unregister(fileobj)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        return []

    def get_map(self) -> Mapping[Any, selectors.SelectorKey]:
        return self._real.get_map()

    def close(self) -> None:
        self._real.close()


class _Handle(asyncio.Handle):
    """A callback of a `VirtualTimeLoop`. Unlike asyncio's class, it does not ask the loop for its debug mode.

    A simulation makes 100,000 of them.
    """

    __slots__ = ()

    def __init__(
        self,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        self._callback = callback
        self._args = args
        self._loop = loop
        self._context = context
        self._cancelled = False
        self._repr = None
        self._source_traceback = None

    def cancel(self) -> None:
        self._cancelled = True
        self._callback = self._args = None  # type: ignore[assignment]


class _TimerHandle(_Handle, asyncio.TimerHandle):
    """A timer of a `VirtualTimeLoop`."""

    __slots__ = ()

    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: asyncio.AbstractEventLoop,
        context: Context,
    ) -> None:
        _Handle.__init__(self, callback, args, loop, context)
        self._when = when
        self._scheduled = False


class VirtualTimeLoop(asyncio.SelectorEventLoop):
    """An asyncio event loop in virtual time, which starts at 0."""

    def __init__(self) -> None:
        self._now = 0.0
        #: the timers by their time, those of one time in the order in which they were set
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timer_count = 0
        #: by its id, whose each asynchronous generator is; a weak reference would be gone before it is asked
        self._generators: dict[int, VirtualProcess | None] = {}
        super().__init__(_VirtualSelector())

    def time(self) -> float:
        return self._now

    def close(self) -> None:
        super().close()
        self._timers.clear()

    def _run_once(self) -> None:
        """Run the ready callbacks until `stop`. Whenever there are none, advance the time to the next timer.

        Raises:
            Deadlock: there is no callback and no timer.
        """
        ready = self._ready  # type: ignore[attr-defined]
        pop = heapq.heappop
        while True:
            timers = self._timers
            if not ready and not self._stopping:  # type: ignore[attr-defined]
                while timers and timers[0][2]._cancelled:
                    pop(timers)
                if not timers:
                    raise Deadlock("nothing is ready and no timer is set")
                self._now = max(self._now, timers[0][0])
            now = self._now
            while timers and timers[0][0] <= now:
                ready.append(pop(timers)[2])
            for _ in range(len(ready)):
                handle = ready.popleft()
                if not handle._cancelled:
                    handle._run()
            if self._stopping:  # type: ignore[attr-defined]
                return

    # What a dead process schedules is cancelled at once; `VirtualProcess.kill` sees to what it had scheduled.

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        handle = _Handle(callback, args, self, context)
        process = context.get(_current)
        if process is not None and process.is_paused:
            process.held_ready.append(handle)
            return handle
        self._ready.append(handle)  # type: ignore[attr-defined]
        if process is not None and not process.is_alive:
            self._prevent(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        if self._closed:  # type: ignore[attr-defined]
            self._check_closed()  # type: ignore[attr-defined]
        if context is None:
            context = copy_context()
        timer = _TimerHandle(when, callback, args, self, context)
        process = context.get(_current)
        if process is None:
            self._set(timer)
        elif process.is_paused:
            process.held_timers.append(timer)
        elif process.is_alive:
            self._set(timer)
        else:
            timer.cancel()
        return timer

    def _set(self, timer: asyncio.TimerHandle) -> None:
        # Not in the loop's own heap, whose entries compare themselves in Python.
        self._timer_count += 1
        heapq.heappush(self._timers, (timer.when(), self._timer_count, timer))

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        task = asyncio.Task(coro, loop=self, name=name, context=context)
        process = _process_of(context)
        if process is not None:
            process.note_task(task)
        return task

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not isinstance(context.get("exception"), Killed):
            super().call_exception_handler(context)

    def _asyncgen_firstiter_hook(self, agen: Any) -> None:
        super()._asyncgen_firstiter_hook(agen)  # type: ignore[misc]
        self._generators[id(agen)] = _process_of(None)

    def _asyncgen_finalizer_hook(self, agen: Any) -> None:
        """Close an async generator that Python collects, unless its process was killed."""
        process = self._generators.pop(id(agen), None)
        if process is None or process.is_alive:
            super()._asyncgen_finalizer_hook(agen)  # type: ignore[misc]
        else:
            self._asyncgens.discard(agen)  # type: ignore[attr-defined]

    def cancel_handles_of(self, process: VirtualProcess) -> None:
        """Cancel all callbacks and timers of a process."""
        # Private, and the same in every Python so far; the tests would say if that changed.
        held = [*process.held_ready, *process.held_timers]
        timers = [timer for _, _, timer in self._timers]
        for handle in [*held, *self._ready, *timers]:  # type: ignore[attr-defined]
            if handle._context.get(_current) is process:
                self._prevent(handle)

    def _prevent(self, handle: asyncio.Handle) -> None:
        """Cancel one callback of a killed process, and mark the errors of its task as read."""
        for argument in handle._args or ():
            if isinstance(argument, asyncio.Future):
                # Not at once: the future may be about to note that nobody has seen its error.
                super().call_soon(_forget_error, argument, context=_NO_PROCESS)
        handle.cancel()

    def hold_handles_of(self, process: VirtualProcess) -> None:
        """Remove all callbacks and timers of a process from the loop, and keep them."""
        ready = self._ready  # type: ignore[attr-defined]
        for place, handle in enumerate(ready):
            if handle._context.get(_current) is process and not handle.cancelled():
                process.held_ready.append(handle)
                # The loop counts what is ready before it runs it: something must stand in its place.
                ready[place] = asyncio.Handle(_nothing, (), self)
        stays = []
        for entry in sorted(self._timers):
            timer = entry[2]
            if timer._context.get(_current) is process and not timer.cancelled():  # type: ignore[attr-defined]
                process.held_timers.append(timer)
            else:
                stays.append(entry)
        self._timers = stays

    def release_handles_of(self, process: VirtualProcess) -> None:
        """Schedule the kept callbacks and timers again. Overdue timers run at once, in the order of their
        times.
        """
        ready, process.held_ready = process.held_ready, []
        timers, process.held_timers = process.held_timers, []
        self._ready.extend(handle for handle in ready if not handle.cancelled())  # type: ignore[attr-defined]
        for timer in timers:
            if not timer.cancelled():
                self._set(timer)

    def _write_to_self(self) -> None:
        """Do nothing: no thread waits in `select`."""


class VirtualProcess:
    """A simulated process: everything that `run` begins on the loop, such as tasks, timers and callbacks.

    They belong to the process because they inherit its context (`contextvars`). Code outside of the process,
    such as a network, must call back in the context of the original call: ``loop.call_soon(callback,
    context=copy_context())``.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.is_alive = True
        self.is_paused = False
        #: what it would do if it were not paused, and its timers
        self.held_ready: list[asyncio.Handle] = []
        self.held_timers: list[asyncio.TimerHandle] = []
        self._context = copy_context()
        self._context.run(_current.set, self)
        #: in the order of their creation, with some that have ended
        self._tasks: list[ref[asyncio.Task[Any]]] = []
        self._most_tasks = _FEW_TASKS

    def __repr__(self) -> str:
        return f"<{'' if self.is_alive else 'dead '}process {self.name}>"

    @staticmethod
    def current() -> VirtualProcess | None:
        """Return the process to which the running code belongs; None if there is none."""
        return _current.get()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin a coroutine in this process, and return its task. After `kill`, the task never ends for
        outside code.
        """
        return asyncio.get_running_loop().create_task(coroutine, name=self.name, context=self._context.copy())

    def pause(self) -> None:
        """Stop the process as SIGSTOP does, until `resume`. Its callbacks wait. Call this from outside of the
        process.
        """
        if self.is_alive and not self.is_paused:
            self.is_paused = True
            _virtual_loop().hold_handles_of(self)

    def resume(self) -> None:
        """Continue after `pause`."""
        if self.is_alive and self.is_paused:
            self.is_paused = False
            _virtual_loop().release_handles_of(self)

    def kill(self) -> None:
        """End the process as SIGKILL does. The running code may belong to the process."""
        if not self.is_alive:
            return
        self.is_alive = self.is_paused = False
        tasks = [task for weak in self._tasks if (task := weak()) is not None]
        _virtual_loop().cancel_handles_of(self)
        for task in tasks:
            self._end(task)

    def note_task(self, task: asyncio.Task[Any]) -> None:
        """Note a new task of this process."""
        self._tasks.append(ref(task))
        if len(self._tasks) > self._most_tasks:
            self._tasks = [weak for weak in self._tasks if (known := weak()) is not None and not known.done()]
            self._most_tasks = max(_FEW_TASKS, 2 * len(self._tasks))
        if not self.is_alive:  # a `finally` block has made it
            self._end(task)

    def _end(self, task: asyncio.Task[Any]) -> None:
        if not task.done():
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            # gather() would look at the errors of its futures when the last of them is done.
            for gathered in getattr(task._fut_waiter, "_children", ()):  # type: ignore[attr-defined]
                _forget_error(gathered)
            if self._context.copy().run(_close, task.get_coro()):
                asyncio.tasks._unregister_task(task)  # else the loop's end would wait for it
            else:  # it kills itself, and may yet wait for something in a `finally` block
                _virtual_loop().call_soon(self._end, task, context=_NO_PROCESS)


def _virtual_loop() -> VirtualTimeLoop:
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualTimeLoop)
    return loop


def _forget_error(future: asyncio.Future[Any]) -> None:
    if future.done() and not future.cancelled():
        future.exception()


def _nothing() -> None:
    """Do nothing. This replaces a callback while its process is paused."""


def _process_of(context: Context | None) -> VirtualProcess | None:
    return _current.get() if context is None else context.get(_current)


def _close(coroutine: Any) -> bool:
    """Close a coroutine now, before Python collects it. Return False if it is running."""
    for _ in range(_CLOSINGS):
        try:
            coroutine.close()
        except RuntimeError:  # it awaits something in a `finally` block
            continue
        except ValueError:  # it is the one that kills
            return False
        except BaseException:  # it has no business with anyone any more
            return True
        return True
    return True


def run_virtual(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine to its end in virtual time, and return its result.

    Raises:
        Deadlock: the coroutine waits, and no timer is left.
    """
    with asyncio.Runner(loop_factory=VirtualTimeLoop) as runner:
        return runner.run(coroutine)
