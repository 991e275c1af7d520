"""No request to a registry delays others: the turns of its event loop are short, and it keeps little memory.

The turns are measured in CPU time of the loop's thread, so a busy machine does not change the results.
"""

from __future__ import annotations

import ctypes
import gc
import http.client
import json
import os
import socket
import threading
import time
from asyncio import events
from pathlib import Path
from typing import NamedTuple

import pytest
from confluent_kafka import Producer
from tests.integration.registry.hostile_requests import cases, world

from barnabas.registry.server import RegistryServer, RegistrySettings, claim

LONGEST_TURN_S = 0.1
MAX_HELD = 64 << 20
#: one in so many runs always, all in `make hostile`
SAMPLE = 11


class Turn(NamedTuple):
    seconds: float
    what: str


class Measured:
    """A registry in this process. The duration of each turn of its loop is measured.

    The garbage collector is off, because it would also examine the objects of other tests.
    """

    def __init__(self, server, monkeypatch):
        self.server = server
        self.longest = Turn(0, "")
        self.host, _, self.port = server.url.removeprefix("http://").partition(":")
        thread = server._thread.ident
        run = events.Handle._run
        collecting = 0.0

        def time_collection(phase, _):
            nonlocal collecting
            if threading.get_ident() == thread:
                collecting += time.thread_time() * (1 if phase == "stop" else -1)

        def timed(handle):
            if threading.get_ident() != thread:
                return run(handle)
            start = time.thread_time() - collecting
            run(handle)
            seconds = time.thread_time() - collecting - start
            if seconds > self.longest.seconds:
                self.longest = Turn(seconds, repr(handle)[:300])
            return None

        monkeypatch.setattr(events.Handle, "_run", timed)
        self.time_collection = time_collection

    def ask(self, method, path, body=None, headers=None):
        """Send a request, and return the status and the body."""
        connection = http.client.HTTPConnection(self.host, int(self.port), timeout=120)
        try:
            kind = {"Content-Type": "application/vnd.schemaregistry.v1+json"} if body is not None else {}
            connection.request(method, path, body, {**kind, **(headers or {})})
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def ask_while_others_ask(self, asked):
        """Send a request while another client sends requests all the time and must get each answer."""
        answers = []
        hostile = threading.Thread(target=lambda: answers.append(self.ask(*asked)))
        hostile.start()
        while True:
            ended = not hostile.is_alive()
            assert self.ask("GET", "/subjects/s/versions/1/schema")[0] == 200
            if ended:
                break
            hostile.join(0.05)
        return answers[0]


@pytest.fixture(scope="module")
def running(barnabas_broker):
    """Start a registry with the schemas to which hostile requests refer."""
    topic = f"_schemas-hostile-{os.getpid()}"
    settings = RegistrySettings(barnabas_broker.bootstrap_servers, topic=topic)
    with RegistryServer(settings, claim("127.0.0.1:0")):
        pass  # it makes the topic
    producer = Producer({"bootstrap.servers": barnabas_broker.bootstrap_servers})
    for key, value in world():
        producer.produce(topic, json.dumps(value), json.dumps(key))
        producer.poll(0)
    producer.flush()
    with RegistryServer(settings, claim("127.0.0.1:0")) as server:
        yield server


@pytest.fixture
def registry(running, monkeypatch):
    measured = Measured(running, monkeypatch)
    gc.callbacks.append(measured.time_collection)
    yield measured
    gc.callbacks.remove(measured.time_collection)


def _memory():
    """Return the memory of this process and its children in bytes."""
    gc.collect()
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    mine = os.getpid()
    children = Path(f"/proc/{mine}/task").glob("*/children")
    held = 0
    for pid in (mine, *(int(child) for path in children for child in path.read_text().split())):
        try:
            held += int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        except (FileNotFoundError, IndexError):
            continue  # it has ended
    return held


def _parameters():
    for number, case in enumerate(cases()):
        marks = [] if number % SAMPLE == 0 else [pytest.mark.hostile]
        yield pytest.param(case, id=case.name.replace("/", " "), marks=marks)


@pytest.mark.parametrize("case", list(_parameters()))
def test_a_hostile_request_holds_up_nobody(registry, case):
    *first, last = case.asked()
    for asked in first:
        assert registry.ask(*asked)[0] < 500
    registry.ask("POST", "/subjects/s", b'{"schema":"[]"}')  # so that a worker is there
    before = _memory()
    registry.longest = Turn(0, "")
    status, said = registry.ask_while_others_ask(last)
    assert status < 500
    if status >= 400 and said.startswith(b"{"):
        answer = json.loads(said)
        assert answer["error_code"] // (1 if answer["error_code"] < 1000 else 100) == status
        assert 0 < len(answer["message"]) < 3_000
    assert registry.longest.seconds <= LONGEST_TURN_S, registry.longest
    assert _memory() - before <= MAX_HELD


def test_requests_that_come_all_at_once_hold_up_nobody(registry):
    with socket.create_connection((registry.host, int(registry.port))) as client:
        request = f"GET / HTTP/1.1\r\nHost: {registry.host}:{registry.port}\r\n\r\n".encode()
        sending = threading.Thread(target=client.sendall, args=(request * 20_000,), daemon=True)
        sending.start()
        answered = 0
        while answered < 20_000:
            got = client.recv(1 << 20)
            assert got
            assert b"HTTP/1.1 4" not in got
            answered += got.count(b"HTTP/1.1 200")
        sending.join()
    assert registry.longest.seconds <= LONGEST_TURN_S, registry.longest
