"""A test that hangs ends at its timeout, also if it waits in an event loop.

uvloop catches each exception of a signal's handler. Such an exception can also stop the callback that ends a
wait: then a slow test hangs for good.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGING = """
import asyncio

import pytest

from barnabas.base.system import event_loop


async def forever():
    await asyncio.get_running_loop().create_future()


@pytest.mark.timeout(1)
def test_that_hangs():
    event_loop.run(forever())


def test_another(): ...
"""


@pytest.mark.parametrize(
    ("workers", "told"),
    [([], "in test_that_hangs"), (["-n", "1"], "crashed while running 'test_it.py::test_that_hangs'")],
    ids=["alone", "xdist"],
)
def test_a_test_that_waits_in_an_event_loop_forever_ends_at_its_timeout(tmp_path, workers, told):
    (tmp_path / "test_it.py").write_text(HANGING)
    settings = ["-c", str(ROOT / "pyproject.toml"), "--rootdir", str(tmp_path), "-p", "no:cacheprovider"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *settings, *workers, "test_it.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 1
    assert told in done.stdout + done.stderr
    assert ("1 passed" in done.stdout) == bool(workers)
