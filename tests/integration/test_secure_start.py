"""`barnabas start --secure`: a new broker that only permitted users can access."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient

from barnabas.base.settings_file import read_unchecked
from barnabas.cli.app import app
from barnabas.client.certificate_folder import CertificateFolder
from barnabas.client.properties import translate
from barnabas.testing.runners import ask_to_stop, own_group


@contextmanager
def started(data: Path, *options: str, lines: int = 1) -> Iterator[tuple[str, str]]:
    """Start a broker. Yield its address, and its output until it serves: `lines`
    lines of stdout, and stderr.
    """
    said = data.with_name("stderr")
    command = [sys.executable, "-m", "barnabas.cli", "start", "--secure", "--data", str(data), *options]
    with said.open("wb") as errors:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, **own_group())
    assert process.stdout is not None
    try:
        ready = [process.stdout.readline().decode() for _ in range(lines)]
        assert ready[0].startswith("ready "), said.read_text()
        yield ready[0].split()[1], "".join(ready) + said.read_text()
    finally:
        ask_to_stop(process)
        process.wait(60)
        process.stdout.close()


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str, str]]:
    data = tmp_path_factory.mktemp("secure") / "data"
    with started(data, "--listen", "127.0.0.1:0") as (address, said):
        yield data, address, said


def try_it(said: str) -> None:
    """Run the command that the broker has printed."""
    command = re.search(r"try +barnabas (.*)", said)
    assert command is not None, said
    done = CliRunner().invoke(app, shlex.split(command[1]))
    assert done.exit_code == 0, done.output


def test_the_command_that_is_printed_works(secured: tuple[Path, str, str]) -> None:
    data, _, said = secured
    try_it(said)
    password = translate(read_unchecked(data / "secure" / "admin.properties")).settings["sasl.password"]
    assert len(password) >= 24 and password not in said


def test_secrets_are_their_owners(secured: tuple[Path, str, str]) -> None:
    folder = secured[0] / "secure"
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.name for path in folder.iterdir() if path.stat().st_mode & 0o077} == set()


def test_who_does_not_log_in_is_not_served(secured: tuple[Path, str, str]) -> None:
    data, address, _ = secured
    trust = {"ssl.ca.location": str(data / "secure" / "ca.pem"), "bootstrap.servers": address, "log_level": 0}
    for settings in (
        {},
        {"security.protocol": "SSL"},
        {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": "admin",
            "sasl.password": "guess",
        },
    ):
        with pytest.raises(Exception, match=r"_TRANSPORT|_AUTHENTICATION|_TIMED_OUT"):
            AdminClient({**trust, **settings}).list_topics(timeout=2)


def test_the_certificate_names_this_machines_addresses(secured: tuple[Path, str, str]) -> None:
    hosts = CertificateFolder(secured[0] / "secure").describe("server").hosts
    assert {"localhost", "127.0.0.1", "::1"} <= {*hosts}


def test_a_later_start_keeps_the_password_and_the_authority(tmp_path: Path) -> None:
    data = tmp_path / "data"
    registry = ["--advertise", "localhost", "--registry", "127.0.0.1:0"]
    with started(data, "--listen", "127.0.0.1:0", *registry, lines=2) as (_, said):
        assert "registry https://" in said  # it logs in, too
        first = (data / "secure" / "admin.properties").read_text()
        assert "bootstrap.servers=localhost:" in first
    with started(data, "--listen", "127.0.0.1:0") as (_, said):
        again = (data / "secure" / "admin.properties").read_text()
        assert first.splitlines()[1:] == again.splitlines()[1:]
        try_it(said)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--set", "listeners=PLAINTEXT://127.0.0.1:0"], "use --listen"),
        (["--set", "ssl.keystore.location=x"], "sets ssl.keystore.location itself"),
    ],
)
def test_what_contradicts_it_is_refused(tmp_path: Path, options: list[str], words: str) -> None:
    refused = CliRunner().invoke(app, ["start", "--secure", "--data", str(tmp_path / "data"), *options])
    assert refused.exit_code and words in refused.stderr
    assert not (tmp_path / "data").exists()
