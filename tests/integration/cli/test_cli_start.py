"""`barnabas start` as a process."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.ports import held_port

from barnabas.base.environment.machine import machine_name
from barnabas.cli.start.command import start as start_command
from barnabas.client import Admin

BARNABAS = [str(Path(sys.executable).with_name("barnabas"))]  # as users start it


class Started:
    """A broker process that has printed its ready line."""

    def __init__(self, *arguments, cwd):
        self.process = subprocess.Popen(
            [*BARNABAS, "start", *map(str, arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=cwd,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.ready = self.process.stdout.readline()
        self.address = self.ready.split()[1] if self.ready else ""

    def end(self, number=signal.SIGTERM):
        """Send a signal, and return the exit code, the rest of stdout, and stderr."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def start(tmp_path):
    started = []

    def run(*arguments):
        started.append(Started(*arguments, cwd=tmp_path))
        return started[-1]

    yield run
    for broker in started:
        if broker.process.poll() is None:
            broker.process.kill()
        broker.process.communicate()


def failed_start(cwd, *arguments):
    outcome = subprocess.run(
        [*BARNABAS, "start", *map(str, arguments)], capture_output=True, text=True, cwd=cwd, timeout=60
    )
    return outcome.returncode, outcome.stdout, outcome.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_says_ready_with_its_address_and_ends_cleanly_at_a_signal(start, tmp_path, number):
    broker = start("--listen", "127.0.0.1:0", "--data", "here")
    assert broker.ready == f"ready {broker.address}\n"
    host, _, port = broker.address.rpartition(":")
    socket.create_connection((host, int(port))).close()
    code, out, err = broker.end(number)
    assert (code, out) == (0, "")
    assert f"listens on  {broker.address}" in err
    assert f"keeps data  {tmp_path / 'here'}" in err
    assert "Traceback" not in err
    assert (tmp_path / "here" / "meta.properties").is_file()
    assert f"INFO barnabas.broker.server.signals: {number.name}: stopping" in err
    assert f"{tmp_path / 'here'}: flushed and closed 0 partitions; the stop is marked as clean" in err


def _reach(address):
    host, _, port = address.rpartition(":")
    socket.create_connection((host.strip("[]"), int(port)), timeout=60).close()


def test_on_every_interface_it_tells_both_where_it_listens_and_where_clients_connect(start):
    broker = start("--listen", "0.0.0.0:0", "--data", "here")
    _, bound, _, told = broker.ready.split()
    assert broker.ready == f"ready {bound} advertised {told}\n"
    port = bound.rpartition(":")[2]
    assert bound == f"0.0.0.0:{port}"
    assert told == f"{machine_name()}:{port}"
    _reach(f"127.0.0.1:{port}")
    _reach(told)
    err = broker.end()[2]
    assert f"listens on  {bound}" in err
    assert f"clients use {told} (this machine's name; --advertise sets another)" in err


@pytest.mark.parametrize(
    ("advertise", "told"),
    [("broker.example.org", "broker.example.org:{port}"), ("[2001:db8::1]:4711", "[2001:db8::1]:4711")],
)
def test_clients_are_told_what_advertise_says(start, advertise, told):
    broker = start("--listen", "127.0.0.1:0", "--advertise", advertise, "--data", "here")
    port = broker.address.rpartition(":")[2]
    assert broker.ready == f"ready 127.0.0.1:{port} advertised {told.format(port=port)}\n"


@pytest.mark.skipif(not socket.has_ipv6, reason="needs IPv6")
@pytest.mark.parametrize(("host", "reached"), [("[::1]", ["[::1]"]), ("[::]", ["[::1]", "127.0.0.1"])])
def test_it_listens_on_ipv6(start, host, reached):
    broker = start("--listen", f"{host}:0", "--data", "here")
    port = broker.address.rpartition(":")[2]
    assert broker.ready.startswith(f"ready {host}:{port}")
    for address in reached:
        _reach(f"{address}:{port}")


def test_listen_goes_with_the_advertised_address_of_its_own_port(start, tmp_path):
    (tmp_path / "server.properties").write_text(
        "listeners=PLAINTEXT://:9092\nadvertised.listeners=PLAINTEXT://localhost:9092\n"
    )
    broker = start("--config", "server.properties", "--listen", "127.0.0.1:0", "--data", "here")
    assert broker.ready == f"ready {broker.address}\n"
    assert not broker.address.endswith(":9092")


EXAMPLES = [
    line.split()[2:] for line in start_command.epilog.splitlines() if line.startswith("  barnabas start")
]


@pytest.mark.parametrize("example", EXAMPLES, ids=" ".join)
def test_every_example_of_its_help_starts(start, tmp_path, example):
    (tmp_path / "server.properties").write_text("listeners=PLAINTEXT://:9092\nlog.dirs=here\n")
    here = {"/var/lib/barnabas": "here", "server.properties": "server.properties"}
    arguments = [re.sub(r":(9092|8081)$", ":0", here.get(word, word)) for word in example]
    if "--listen" not in example:
        arguments += ["--listen", "127.0.0.1:0"]
    broker = start(*arguments)
    assert broker.ready.startswith("ready "), broker.end()[2]
    assert broker.end()[0] == 0


def test_a_second_broker_on_the_same_data_gets_one_clear_line(start, tmp_path):
    start("--listen", "127.0.0.1:0", "--data", "here")
    code, out, err = failed_start(tmp_path, "--listen", "127.0.0.1:0", "--data", "here")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert "here" in err


def test_a_second_broker_on_the_same_port_gets_one_clear_line(start, tmp_path):
    broker = start("--listen", "127.0.0.1:0", "--data", "one")
    code, out, err = failed_start(tmp_path, "--listen", broker.address, "--data", "two")
    assert (code, out) == (1, "")
    assert len(err.splitlines()) == 1
    assert f"listeners=PLAINTEXT://{broker.address} cannot be used: the port is in use" in err
    if sys.platform == "linux":
        assert f"by process {broker.process.pid}" in err


def test_settings_come_from_the_command_line_before_the_file(start, tmp_path, barnabas):
    (tmp_path / "server.properties").write_text(
        "# as Kafka's\nnode.id=7\nlog.dirs=unused\nnum.partitions=3\nlog.retention.ms=1000\n"
    )
    broker = start(
        "--config",
        "server.properties",
        "--listen",
        "127.0.0.1:0",
        "--data",
        "here",
        "--set",
        "log.retention.ms=2000",
    )
    values = barnabas("configs", "describe", "--broker", 7, "--json", "-b", broker.address).json()
    found = {value["name"]: value["value"] for value in values}
    assert found["num.partitions"] == "3"
    assert found["log.retention.ms"] == "2000"
    assert not (tmp_path / "unused").exists()


def test_settings_come_from_toml(start, tmp_path, barnabas):
    (tmp_path / "barnabas.toml").write_text('"num.partitions" = 4\n"log.dirs" = "here"\n')
    broker = start("--config", "barnabas.toml", "--listen", "127.0.0.1:0")
    barnabas("topics", "create", "t", "-b", broker.address)
    assert (
        len(barnabas("topics", "describe", "t", "--json", "-b", broker.address).json()[0]["partitions"]) == 4
    )
    assert (tmp_path / "here").is_dir()


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--set", "no.such.setting=1"], 1, "no.such.setting"),
        (["--set", "num.partitions=many"], 1, "num.partitions=many is not allowed: write a whole number"),
        (["--set", "num.partitions"], 2, "write NAME=VALUE"),
        (["--listen", "nowhere"], 2, "write HOST:PORT"),
        (["--listen", "127.0.0.1:99999"], 2, "write HOST:PORT"),
        (["--listen", "a,b:9092"], 2, "write HOST:PORT"),
        (["--listen", "::1:9092"], 2, "write HOST:PORT"),
        (["--listen", "SASL_SSL://127.0.0.1:0"], 2, "write HOST:PORT"),
        (["--advertise", "PLAINTEXT://host:0"], 2, "write HOST or HOST:PORT"),
        (["--advertise", "0.0.0.0"], 1, "use a name or an address of this machine"),
        (["--advertise", "h", "--set", "listeners=PLAINTEXT://:0,B://:0"], 2, "which of several listeners"),
        (["--registry", "nowhere"], 2, "write HOST:PORT"),
        (["--registry", "--set", "no.such.setting=1"], 1, "no.such.setting"),  # its address may be left out
        (["--listen", "192.0.2.1:0"], 1, "192.0.2.1 is not an address of this machine"),
        (["--listen", "no-such-host.invalid:0"], 1, "no-such-host.invalid is not known"),
        (["--config", "absent.toml"], 2, "does not exist"),
        (["--data", "a", "--set", "log.dirs=a,b"], 2, "--set log.dirs=DIR,DIR without --data"),
        (["--data", "a", "--set", "log.dir=b"], 2, "--set log.dirs=DIR,DIR without --data"),
    ],
)
def test_what_cannot_be_is_refused_with_the_cure(tmp_path, arguments, code, words):
    outcome = failed_start(tmp_path, *arguments)
    assert outcome[0] == code
    assert words in outcome[2]
    assert "Traceback" not in outcome[2]


@pytest.mark.parametrize("redirect", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-", "| true", "2>&1 | true"])
def test_it_serves_whoever_listens_to_what_it_says(tmp_path, redirect):
    held = held_port()
    port = held.getsockname()[1]
    command = f"{sys.executable} -m barnabas.cli start --listen 127.0.0.1:{port} --data here {redirect}"
    process = subprocess.Popen(
        ["sh", "-c", f"{{ {command}; }}"],
        cwd=tmp_path,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                _reach(f"127.0.0.1:{port}")
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        Admin(f"127.0.0.1:{port}").create_topic("served", 1)
        _reach(f"127.0.0.1:{port}")
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(60)
        held.close()
    deadline = time.monotonic() + 60
    while not (tmp_path / "here" / ".kafka_cleanshutdown").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_data_outlives_the_process(start, barnabas):
    broker = start("--listen", "127.0.0.1:0", "--data", "here")
    barnabas("topics", "create", "kept", "-b", broker.address)
    barnabas("produce", "kept", "-b", broker.address, stdin="a\nb\n")
    broker.end()
    again = start("--listen", "127.0.0.1:0", "--data", "here")
    assert barnabas("consume", "kept", "-e", "-b", again.address).lines == ["a", "b"]


def test_it_loads_neither_rich_nor_a_kafka_client(tmp_path):
    code = (
        "import sys, threading, os, signal\n"
        "import barnabas.broker.server.run as run\n"
        "real = run.run\n"
        "def serve(config, ready, *more):\n"
        "    real(config, lambda broker: (ready(broker), os.kill(os.getpid(), signal.SIGTERM)))\n"
        "run.run = serve\n"
        "sys.argv = ['barnabas', 'start', '--data', 'here', '--listen', '127.0.0.1:0']\n"
        "from barnabas.cli import main\n"
        "try: main()\n"
        "finally: print(*({'rich', 'confluent_kafka', 'pytest', 'pyspark'} & set(sys.modules)))\n"
    )
    outcome = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, timeout=60, check=True
    )
    assert outcome.stdout.splitlines()[0].startswith("ready ")
    assert outcome.stdout.splitlines()[1:] == [""]
