"""A schema registry beside a broker in one process: its address, its brokers, its end."""

from __future__ import annotations

import asyncio
import socket
import threading
from importlib.machinery import ModuleSpec
from types import SimpleNamespace

import pytest

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.cli import registry as registry_command
from barnabas.cli.start import registry
from barnabas.registry import server


class Registry:
    """Stands for the registry itself: it serves at once, until it is stopped, or `failure` is set."""

    def __init__(self) -> None:
        self.settings: server.RegistrySettings | None = None
        self.address = ""
        self.failure: Exception | None = None
        self.is_serving = threading.Event()
        self.has_ended = threading.Event()

    async def serve(self, settings, claimed, on_ready):
        self.settings = settings
        try:
            if self.failure is not None:
                raise self.failure
            claimed.listen()
            self.address = f"127.0.0.1:{claimed.getsockname()[1]}"
            on_ready(f"http://{self.address}")
            self.is_serving.set()
            await asyncio.get_running_loop().create_future()
        finally:
            self.has_ended.set()


@pytest.fixture
def served(monkeypatch):
    found = Registry()
    monkeypatch.setattr(server, "serve", found.serve)
    return found


@pytest.fixture
def stops(monkeypatch):
    """Count the requests to stop this process, in place of a signal."""
    asked = []
    monkeypatch.setattr(registry, "stop_this_process", lambda: asked.append("stop"))
    return asked


def test_a_registry_serves_beside_its_broker_until_the_broker_ends(served, capsys):
    companion = registry.beside_broker("127.0.0.1:0", lambda address: f"user:secret@{address}")
    assert served.settings is None
    with companion(SimpleNamespace(address="127.0.0.1:9092")):
        assert served.is_serving.wait(60)
        assert not served.has_ended.is_set()
    assert served.has_ended.is_set()
    assert served.settings is not None
    assert served.settings.bootstrap_servers == "user:secret@127.0.0.1:9092"
    assert (served.settings.tls, served.settings.login) == (None, False)
    assert capsys.readouterr().out.startswith("registry http://127.0.0.1:")


def test_a_registry_with_a_key_serves_https_and_requires_logins(served):
    with registry.registry_at("127.0.0.1:0", str, "registry.pem")("127.0.0.1:9092,127.0.0.1:9093"):
        assert served.is_serving.wait(60)
    assert served.settings.bootstrap_servers == "127.0.0.1:9092,127.0.0.1:9093"
    assert (served.settings.tls, served.settings.login) == ("registry.pem", True)


def test_an_address_in_use_is_refused_before_the_broker_starts(served):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(ConfigError, match="in use"):
            registry.beside_broker(f"127.0.0.1:{taken.getsockname()[1]}", str)
    assert served.settings is None


def test_the_address_is_free_again_when_the_registry_has_stopped(served):
    with registry.registry_at("127.0.0.1:0", str)("127.0.0.1:9092"):
        assert served.is_serving.wait(60)
        with pytest.raises(ConfigError, match="in use"):
            registry.registry_at(served.address, str)
    registry.claim(served.address).close()


def test_a_registry_that_is_not_installed_is_refused_before_the_broker_starts(served, monkeypatch):
    def find(name: str) -> ModuleSpec | None:
        return None

    monkeypatch.setattr(registry_command, "find_spec", find)
    with pytest.raises(ConfigError, match="registry"):
        registry.beside_broker("127.0.0.1:0", str)


def test_a_registry_that_fails_stops_the_process_and_says_why(served, stops, caplog):
    served.failure = BarnabasError("the topic _schemas is compacted no more")
    with pytest.raises(BarnabasError, match="_schemas"), registry.registry_at("127.0.0.1:0", str)("b:1"):
        assert served.has_ended.wait(60)
    assert stops == ["stop"]
    assert "the brokers stop, too: the topic _schemas is compacted no more" in caplog.text


def test_a_registry_serves_though_nothing_reads_its_output(served, stops, monkeypatch):
    def report(line: str) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(registry, "report", report)
    with registry.registry_at("127.0.0.1:0", str)("127.0.0.1:9092"):
        assert served.is_serving.wait(60)
    assert stops == []
