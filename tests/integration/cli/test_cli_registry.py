"""`barnabas registry`, and `barnabas start --registry`, as processes."""

from __future__ import annotations

import json
import signal
import socket
import urllib.request

import pytest
from tests.ports import held_port


def ask(url, path, body=None):
    data = None if body is None else json.dumps(body).encode()
    headers = {"Content-Type": "application/json"} if data else {}
    with urllib.request.urlopen(urllib.request.Request(url + path, data, headers), timeout=60) as answer:
        return json.load(answer)


def said(process, word):
    first, _, rest = process.stdout.readline().strip().partition(" ")
    assert first == word
    return rest


def test_a_registry_runs_beside_a_broker_until_both_are_stopped(launch):
    arguments = ("start", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0")
    process = launch(*arguments)
    said(process, "ready")
    url = said(process, "registry")
    assert ask(url, "/subjects/s/versions", {"schema": '"int"'})["id"] == 1
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err
    again = launch(*arguments)
    said(again, "ready")
    assert ask(said(again, "registry"), "/subjects") == ["s"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_registry_runs_by_itself(launch, barnabas_broker, number):
    where = ("--listen", "127.0.0.1:0", "--bootstrap-server", barnabas_broker.bootstrap_servers)
    process = launch("registry", *where, "--topic", "cli-schemas", "--compatibility", "full")
    url = said(process, "ready")
    assert ask(url, "/config") == {"compatibilityLevel": "FULL"}
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 0, err


def test_a_registry_that_waits_for_its_broker_says_so_and_stops_when_told(launch):
    with held_port() as free:
        nobody = f"127.0.0.1:{free.getsockname()[1]}"
        process = launch("registry", "--listen", "127.0.0.1:0", "--bootstrap-server", nobody)
        line = process.stderr.readline()
        assert f"no broker answers at {nobody} yet; the registry waits" in line
        process.send_signal(signal.SIGTERM)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


@pytest.mark.parametrize("command", [("registry", "--listen"), ("start", "--registry")])
def test_an_address_in_use_is_one_line(launch, command):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        process = launch(*command, where)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.count("\n") == 1
    assert f"the registry cannot listen on {where}" in err


def test_a_topic_that_is_unfit_stops_the_broker_with_the_reason(launch):
    process = launch("start", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0")
    address = said(process, "ready")
    said(process, "registry")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    again = launch("start", "--listen", "127.0.0.1:0")
    address = said(again, "ready")
    changed = launch(
        *("configs", "alter", "--topic", "_schemas", "--set", "cleanup.policy=delete", "-b", address)
    )
    changed.communicate(timeout=60)
    assert changed.returncode == 0
    again.send_signal(signal.SIGTERM)
    again.communicate(timeout=60)
    broken = launch("start", "--listen", "127.0.0.1:0", "--registry", "127.0.0.1:0")
    _, err = broken.communicate(timeout=60)
    assert broken.returncode == 1
    assert "cleanup.policy=delete of topic _schemas would lose schemas" in err.splitlines()[-1]
