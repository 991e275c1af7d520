"""Random malformed frames, before and after a login: the broker only rejects them.

`BARNABAS_FRAMES=10000000 make hostile` tries this number; otherwise the test tries some tens of thousands.
"""

from __future__ import annotations

import asyncio
import gc
import os
import random
import time
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from tests.unit.broker.logins.stored import Given
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ProtocolError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.logins.sasl import Sasl
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.handlers import load
from barnabas.broker.server.network.login import Logins
from barnabas.broker.server.requests.api import DIRECT_ELEMENTS
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_counted
from barnabas.kafka.security.principal import ANONYMOUS

FRAMES = int(os.environ.get("BARNABAS_FRAMES", "60000"))
#: CPU seconds that one frame may take on the event loop
MAX_SECONDS = 0.1
#: bytes that may be held after all of them
MAX_LEFT = 4_000_000


def seeds() -> list[bytes]:
    """Return a frame of each API and version, with one item in each array."""
    frames = []
    for api in load().values():
        for version in range(api.versions[0], api.versions[1] + 1):
            header = RequestHeader(api.key, version, 7, "fuzz")
            request = _filled(api.request)
            frames.append(b"".join(map(bytes, encode_request(header, request)))[4:])
    return frames


def _filled(struct: type) -> Any:
    made = struct()
    for field in struct.__fields__:
        if isinstance(field.type, type) and field.is_array:
            setattr(made, field.name, [_filled(field.type)])
    return made


def damaged(frame: bytes, rng: random.Random) -> bytes:
    """Return a frame with bytes that are changed, removed, duplicated, or all random."""
    kind = rng.randrange(6)
    if kind == 0:
        return rng.randbytes(rng.randrange(200))
    data = bytearray(frame)
    if kind == 1:
        return bytes(data[: rng.randrange(len(data))])
    if kind == 2:
        return bytes(data) + rng.randbytes(rng.randrange(1, 50))
    # the header is left as it is more often than not, or nothing behind it is ever looked at
    first = 0 if rng.random() < 0.2 else min(8, len(data) - 1)
    for _ in range(rng.randrange(1, 6)):
        place = rng.randrange(first, len(data))
        if kind == 3:
            data[place] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        elif kind == 4:
            data[place : place + rng.randrange(1, 9)] = b"\xff" * rng.randrange(1, 9)
        else:
            data[place:place] = data[place : place + rng.randrange(1, 17)]
    return bytes(data)


class Client:
    """A connection that counts its answers."""

    client_host = "192.0.2.1"
    listener = "SASL_PLAINTEXT"
    principal = ANONYMOUS
    client_software_name = client_software_version = ""
    connection_id = 1

    def __init__(self) -> None:
        self.answers = 0
        self.parked: list[Any] = []

    def reply(self, chunks: Any) -> None:
        self.answers += 1

    def park(self, future: Any, finish: Any, cancel: bool, *, exclusive: bool = False) -> None:
        self.parked.append(future)

    def close(self, reason: str) -> None:
        pass

    def logged_in(self, principal: Any, serve: Any) -> None:
        raise AssertionError(f"{principal} has logged in by a frame that was made up")


@pytest.mark.hostile
@pytest.mark.timeout(0)
def test_frames_before_a_login_are_refused() -> None:
    """The frames are the first of their connections, or follow a SaslHandshake."""

    async def scenario(count: int) -> float:
        config = BrokerConfig.from_text(
            {"sasl.enabled.mechanisms": "PLAIN", "connection.failed.authentication.delay.ms": "0"}
        )
        environment = Environment.of_system()
        logins = Logins(
            view_of(config=config, clock=environment.clock),
            Sasl(Given(), environment.random, bytes(32)),
            lambda frame, client: parse_counted(frame, DIRECT_ELEMENTS),
            environment.blocking,
            AuditTrail(config, environment),
        )
        rng = random.Random(12)
        frames = [frame for frame in seeds() if int.from_bytes(frame[:2], "big") in (17, 18, 36)]
        slowest = 0.0
        for number in range(count):
            client, login = Client(), logins.begin(Client.listener)
            for _ in range(2):
                frame = damaged(rng.choice(frames), rng)
                began = time.thread_time()
                try:
                    login.serve(frame, client)
                except ProtocolError:
                    break
                finally:
                    slowest = max(slowest, time.thread_time() - began)
            for future in client.parked:
                future.cancel()
            if number % 1000 == 0:
                await asyncio.sleep(0)
        logins.stop()
        return slowest

    _measure(lambda count: asyncio.run(scenario(count)))


@pytest.mark.hostile
@pytest.mark.timeout(0)
def test_frames_after_a_login_are_decoded_or_refused() -> None:
    """The frames are decoded as in the dispatcher on the loop."""

    def run(count: int) -> float:
        rng = random.Random(13)
        frames = seeds()
        slowest = 0.0
        for _ in range(count):
            frame = damaged(rng.choice(frames), rng)
            began = time.thread_time()
            try:
                parse_counted(frame, DIRECT_ELEMENTS)
            except ProtocolError:
                pass
            finally:
                slowest = max(slowest, time.thread_time() - began)
        return slowest

    _measure(run)


def _measure(run: Callable[[int], float]) -> None:
    """Run half of the frames to measure the time, and some again to measure the memory that stays."""
    gc.collect()
    gc.freeze()  # what other tests have made is not for a frame to go through
    try:
        slowest = run(FRAMES // 2)
    finally:
        gc.unfreeze()
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        run(min(FRAMES // 20, 50_000))
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    print(f"{FRAMES // 2} frames: the slowest took {1000 * slowest:.1f} ms, {left} bytes are left")
    assert slowest < MAX_SECONDS
    assert left < MAX_LEFT
