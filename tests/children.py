"""Children of a test run: they get the default signals, and they end with it, however it ends.

`tend` is called when pytest starts, in its workers too, before any test starts a process.
"""

from __future__ import annotations

import os
import signal

from barnabas.base.system.orphans import environment_that_ends

#: which signals the run ignores, for its workers: a signal with a handler is no more ignored in what we start
_IGNORED = "BARNABAS_TESTS_IGNORE"


def tend() -> None:
    """Prepare this process for the children of its tests."""
    _give_default_signals()
    os.environ.update(environment_that_ends())


def _give_default_signals() -> None:
    """Have children not ignore what this process ignores: in the background SIGINT, under nohup SIGHUP.

    An ignored signal stays ignored in a new program; one with a handler gets its default there. So the signal
    gets a handler that does nothing. A worker of xdist has the defaults, and ignores what the whole run does.
    """
    ignored = {int(number) for number in os.environ.get(_IGNORED, "").split()}
    for number in (signal.SIGINT, *([signal.SIGHUP] if hasattr(signal, "SIGHUP") else [])):
        if signal.getsignal(number) is signal.SIG_IGN:
            ignored.add(int(number))
    for ignored_number in ignored:
        signal.signal(ignored_number, _nothing)
    os.environ[_IGNORED] = " ".join(map(str, sorted(ignored)))


def _nothing(*_: object) -> None: ...
