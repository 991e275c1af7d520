"""A command whose standard streams are closed, full, or without a reader."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

BARNABAS = [sys.executable, "-m", "barnabas.cli"]


def run(*arguments, closed=(), **streams):
    """Run a command with the descriptors in `closed` closed. Return its exit code, stdout and stderr."""

    def close():
        for number in closed:
            os.close(number)

    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    ended = subprocess.run(
        [*BARNABAS, *arguments], preexec_fn=close, timeout=60, check=False, text=True, **streams
    )
    return ended.returncode, ended.stdout, ended.stderr


def test_a_closed_stdin_is_said_in_one_line():
    code, _, err = run("produce", "t", closed=[0])
    assert (code, err) == (
        1,
        "Error: stdin is closed: pipe the input to the command, or name a file with --file\n",
    )


def test_a_closed_stdout_is_said_in_one_line():
    assert run("--help", closed=[1]) == (1, "", "Error: stdout: it is closed\n")


def test_a_full_disk_below_stdout_is_said_in_one_line():
    with Path("/dev/full").open("wb") as full:
        code, _, err = run("--help", stdout=full)
    assert (code, err) == (1, "Error: stdout: No space left on device\n")


@pytest.mark.parametrize("closed", [[2], [0, 2], [0, 1, 2]])
def test_a_closed_stderr_changes_no_exit_code(closed):
    assert run("topics", "list", "-b", "127.0.0.1:1", closed=closed)[0] == 1


def test_a_reader_of_stdout_that_has_gone_is_no_failure():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        code, _, err = run("--help", stdout=gone)
    assert (code, err) == (0, "")


def test_a_reader_of_stderr_that_has_gone_changes_no_exit_code():
    read, write = os.pipe()
    os.close(read)
    with os.fdopen(write, "wb") as gone:
        assert run("topics", "list", "-b", "127.0.0.1:1", stderr=gone)[0] == 1


def test_what_stdout_cannot_encode_is_escaped(tmp_path):
    code, out, err = run(
        "log", "dump", tmp_path / "é.txt", env={**os.environ, "PYTHONIOENCODING": "ascii", "LC_ALL": "C"}
    )
    assert code == 2
    assert out == ""
    assert len(err.splitlines()) == 1
    assert "\\xe9.txt" in err
