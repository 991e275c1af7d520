"""The reaper kills the processes with a mark once another process has ended, and no others."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from contextlib import ExitStack

import pytest

from barnabas.base.system import reaper

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux shows the environment of a process"
)

MARK = "TESTS_REAPER_MARK"


@pytest.fixture
def start():
    """``start(mark, script)``: start a process with a mark in its environment, and kill it after the test."""
    with ExitStack() as exits:

        def begin(mark, script="echo ready; exec sleep 1000"):
            process = exits.enter_context(
                subprocess.Popen(
                    ["sh", "-c", script],
                    env={**os.environ, MARK: mark},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
            exits.callback(process.kill)
            assert process.stdout.readline() == "ready\n"
            return process

        yield begin


@pytest.fixture
def reap(monkeypatch):
    def reap(pid, mark):
        monkeypatch.setattr(sys, "argv", ["reaper.py", str(pid), mark])
        reaper.main()

    return reap


def test_processes_with_the_mark_and_those_they_started_end(start, reap):
    mark, other = secrets.token_hex(8), secrets.token_hex(8)
    marked, parent = start(mark), start(mark, "sh -c 'echo ready; exec sleep 1000'")
    unmarked = start(other)
    ended = start(other, "echo ready")
    ended.wait(60)
    reap(ended.pid, mark)
    assert (marked.wait(60), parent.wait(60)) == (-9, -9)
    assert unmarked.poll() is None


def test_nothing_is_killed_before_the_process_has_ended(start, reap, monkeypatch):
    mark = secrets.token_hex(8)
    run, marked = start(secrets.token_hex(8), "echo ready; read line"), start(mark)
    wait = reaper.select.select

    def end_then_wait(reading, *others):
        assert wait(reading, *others, 0)[0] == [], "it runs"
        assert marked.poll() is None
        run.stdin.close()
        return wait(reading, *others)

    monkeypatch.setattr(reaper.select, "select", end_then_wait)
    reap(run.pid, mark)
    assert marked.wait(60) == -9


def test_a_process_that_the_marked_one_starts_meanwhile_ends_too(start, reap, monkeypatch):
    mark = secrets.token_hex(8)
    ended = start(secrets.token_hex(8), "echo ready")
    ended.wait(60)
    later, first = [], start(mark)
    monkeypatch.setattr(reaper.time, "sleep", lambda _: later or later.append(start(mark)))
    reap(ended.pid, mark)
    assert first.wait(60) == later[0].wait(60) == -9
