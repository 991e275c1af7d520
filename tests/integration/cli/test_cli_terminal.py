"""Output that commands print on a terminal, but not to a pipe."""

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

BARNABAS = [str(Path(sys.executable).with_name("barnabas"))]  # as users start it


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.log"
    path.write_text("".join(f"line {number}\n" for number in range(200)))
    return path


@pytest.fixture
def on_terminal(barnabas_broker):
    """Run a command whose stderr is a terminal, and return its output there."""

    def run(*arguments, stdout=subprocess.DEVNULL):
        terminal, end = pty.openpty()
        process = subprocess.Popen(
            [*BARNABAS, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=stdout,
            stderr=end,
            env={
                **os.environ,
                "BARNABAS_BOOTSTRAP_SERVER": barnabas_broker.bootstrap_servers,
                "TERM": "xterm",
            },
        )
        os.close(end)
        seen = b""
        while True:
            try:
                chunk = os.read(terminal, 65536)
            except OSError:  # the other end is closed
                break
            if not chunk:
                break
            seen += chunk
        os.close(terminal)
        assert process.wait(60) == 0, seen
        return seen.decode()

    return run


def test_progress_shows_on_a_terminal(on_terminal, barnabas_topic, lines, tmp_path):
    assert "sent 200 records  1.7 kB  100%" in on_terminal("produce", barnabas_topic, "--file", lines)
    with (tmp_path / "out").open("wb") as out:
        assert "read 200 records" in on_terminal("consume", barnabas_topic, "-e", stdout=out)
    assert (tmp_path / "out").read_text() == lines.read_text()
    seen = on_terminal("ship", lines, "--topic", barnabas_topic, "--once", "--state", tmp_path / "state")
    assert "shipped 200 records of 200 lines" in seen
    assert "1.7/1.7 kB" in seen


def test_records_that_go_to_a_pipe_come_without_progress(on_terminal, barnabas, barnabas_topic, lines):
    barnabas("produce", barnabas_topic, "--file", lines)
    assert on_terminal("consume", barnabas_topic, "-e", stdout=subprocess.DEVNULL) == ""


def test_in_a_pipe_there_is_nothing_but_the_records(barnabas, barnabas_topic, lines, tmp_path):
    outcome = barnabas("produce", barnabas_topic, "--file", lines)
    assert (outcome.out, outcome.err) == ("", "")
    outcome = barnabas("consume", barnabas_topic, "-e")
    assert (outcome.out, outcome.err) == (lines.read_text(), "")
    outcome = barnabas("ship", lines, "--topic", barnabas_topic, "--once", "--state", tmp_path / "state")
    assert (outcome.out, outcome.err) == ("", "shipped 200 records of 200 lines, 1.7 kB, from 1 files\n")


def test_a_reader_that_goes_away_ends_it_without_a_traceback(barnabas_broker, barnabas_topic):
    barnabas_broker.produce(barnabas_topic, *("x" * 1000 for _ in range(500)))
    command = [*BARNABAS, "consume", barnabas_topic, "-e", "-b", barnabas_broker.bootstrap_servers]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.read(1)
        process.stdout.close()
        err = process.stderr.read()
    assert err == b""


def test_a_reader_that_goes_away_ends_it_although_no_more_records_come(barnabas_broker, barnabas_topic):
    barnabas_broker.produce(barnabas_topic, "x", "y")
    command = [*BARNABAS, "consume", barnabas_topic, "--from-beginning"]
    with subprocess.Popen(
        [*command, "-b", barnabas_broker.bootstrap_servers], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as process:
        process.stdout.readline()
        process.stdout.close()
        assert (process.stderr.read(), process.wait()) == (b"", 0)


def test_ctrl_c_ends_with_130(barnabas_broker, barnabas_topic):
    barnabas_broker.produce(barnabas_topic, "x")
    command = [
        *BARNABAS,
        "consume",
        barnabas_topic,
        "--from-beginning",
        "-b",
        barnabas_broker.bootstrap_servers,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout.read(2) == b"x\n"
        process.send_signal(2)
        err = process.stderr.read()
    assert (process.returncode, err) == (130, b"")
