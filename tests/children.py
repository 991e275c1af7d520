"""Processes that tests start: they have the default signals, and end with the test run, even if it is killed.

pytest calls `tend` at its start, also in its workers, before any test starts a process.
"""

from __future__ import annotations

import os
import signal

from barnabas.base.system.orphans import environment_that_ends

#: which signals the run ignores, for its workers: a signal with a handler is no more ignored in what we start
_IGNORED = "BARNABAS_TESTS_IGNORE"


def tend() -> None:
    """Prepare this process for processes that its tests start."""
    _give_default_signals()
    os.environ.update(environment_that_ends())


def _give_default_signals() -> None:
    """Let new processes have the default actions for signals that this process ignores.

    In the background, SIGINT is ignored; under nohup, SIGHUP is. A new program also ignores a signal that its
    parent ignores. But if the parent has a handler, the new program gets the default action. So this function
    sets a handler that does nothing. A worker of xdist has the default actions, and ignores what the whole
    run ignores.
    """
    ignored = {int(number) for number in os.environ.get(_IGNORED, "").split()}
    for number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(number) is signal.SIG_IGN:
            ignored.add(int(number))
    for ignored_number in ignored:
        signal.signal(ignored_number, _nothing)
    os.environ[_IGNORED] = " ".join(map(str, sorted(ignored)))


def _nothing(*_: object) -> None: ...
