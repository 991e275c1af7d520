"""A pytest plugin that runs the tests once for each mutant of `mutants.py`, each time in a forked process.

It collects the tests, which imports all modules. A child process replaces the code of the changed functions
of one module. Then it runs the tests that call these functions until one fails: first those of the first
folder, and the fastest first. So a mutant costs only its tests. Changes outside of functions are not tested.
"""

from __future__ import annotations

import gc
import json
import os
import pickle
import select
import signal
import sys
import threading
import time
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

#: of the tests that call what is changed, as many are run as take so long, in seconds
_BUDGET_S = 30.0
#: a child that takes longer is caught in an endless loop, and the bug is caught
_LIMIT_S = 120

_failed: list[str] = []


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.failed:
        _failed.append(report.nodeid)


def pytest_runtestloop(session: pytest.Session) -> bool:
    file = Path(os.environ["BARNABAS_MUTANTS"])
    mutants = json.loads(file.read_text())
    callers, seconds = _in_child(
        lambda: _profile(session, {mutant["path"] for mutant in mutants}), 10 * _LIMIT_S
    )
    functions: dict[tuple[str, str, int], list[types.FunctionType]] = {}
    gc.unfreeze()  # tests/conftest.py froze all that was imported by then, and frozen objects are in no list
    for found in gc.get_objects():
        if isinstance(found, types.FunctionType):
            code = found.__code__
            functions.setdefault((code.co_filename, code.co_qualname, code.co_firstlineno), []).append(found)
    beside = Path(session.config.args[0]).resolve()
    is_elsewhere = [beside not in item.path.parents for item in session.items]
    gc.collect()
    gc.freeze()  # a child copies the memory that it writes to, and a collection writes to all
    for mutant in mutants:
        path = mutant["path"]
        changed = _changed(path, mutant.pop("source"))
        planted = [
            (function, new)
            for old, new in changed
            for function in functions.get((path, old.co_qualname, old.co_firstlineno), ())
        ]
        if not planted:
            mutant["outcome"] = "not imported by the tests" if changed else "outside of functions"
            continue
        innermost = max((old.co_qualname for old, _ in changed), key=lambda name: name.count("."))
        numbers = sorted(
            callers.get((path, innermost), ()), key=lambda number: (is_elsewhere[number], seconds[number])
        )
        tests, left = [], _BUDGET_S
        for number in numbers:
            if left > 0:
                tests.append(session.items[number])
                left -= seconds[number]
        if not tests:
            mutant["outcome"] = "run by no test"
            continue

        def plant_and_run(planted: Any = planted, tests: Any = tests) -> bool:
            for function, code in planted:
                function.__code__ = code
            return _run(tests)

        mutant["outcome"] = "survived" if _in_child(plant_and_run, _LIMIT_S) else "caught"
    file.write_text(json.dumps(mutants))
    return True


def _in_child(work: Any, limit_s: float) -> Any:
    """Run `work` in a forked process, and return its result; None if the process fails or takes too long."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.close(reader)
            with os.fdopen(writer, "wb") as pipe:
                pickle.dump(work(), pipe)
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        # not by an alarm, which is pytest-timeout's
        if not select.select([pipe], [], [], limit_s)[0]:
            os.kill(pid, signal.SIGKILL)
        content = pipe.read()
    os.waitpid(pid, 0)
    return pickle.loads(content) if content else None


def _run(items: list[pytest.Item]) -> bool:
    for item, following in zip(items, [*items[1:], None], strict=True):
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=following)
        if _failed:
            return False
    return True


def _profile(session: pytest.Session, paths: set[str]) -> tuple[dict[tuple[str, str], set[int]], list[float]]:
    """Return the tests that call each function, by file and name, and the seconds that each test takes."""
    callers: dict[tuple[str, str], set[int]] = {}
    seconds: list[float] = []

    def note(frame: types.FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename in paths:
            place = (frame.f_code.co_filename, frame.f_code.co_qualname)
            callers.setdefault(place, set()).add(len(seconds))

    sys.setprofile(note)
    threading.setprofile(note)
    for item in session.items:
        began = time.monotonic()
        _run([item])
        seconds.append(time.monotonic() - began)
    sys.setprofile(None)
    assert not _failed, f"these fail without any bug: {_failed}"
    return callers, seconds


def _changed(path: str, source: str) -> list[tuple[types.CodeType, types.CodeType]]:
    """Return the functions with changed code, before and after."""
    before = list(_codes(compile(Path(path).read_text(), path, "exec")))
    after = list(_codes(compile(source, path, "exec")))
    if len(before) != len(after):
        return []
    return [(old, new) for old, new in zip(before, after, strict=True) if old != new]


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    for inner in code.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner
            yield from _codes(inner)
