"""Hostile requests: the broker answers or closes the connection, and continues to serve others."""

from __future__ import annotations

import logging
import math
import os
import random
import struct

import pytest

from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.testing import BarnabasBroker

APIS = list(load().values())
ROUNDS = int(os.environ.get("BARNABAS_FUZZ_ROUNDS", "12"))

#: what breaks things: bounds, and names of what there is and is not
INTEGERS = {
    "b": [-128, -1, 0, 1, 2, 127],
    "h": [-(2**15), -1, 0, 1, 3, 2**15 - 1],
    "i": [-(2**31), -2, -1, 0, 1, 5, 1000, 2**31 - 1],
    "q": [-(2**63), -3, -2, -1, 0, 1, 1_700_000_000_000, 2**63 - 1],
}
STRINGS = [
    "",
    "here",
    "not-here",
    "__consumer_offsets",
    "g",
    "a" * 300,
    ".",
    "x\x00y",
    "\u00e9",
    "consumer",
    "1",
]


@pytest.fixture(scope="module")
def broker():
    with BarnabasBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        broker.create_topic("here")
        broker.produce("here", *[b"x" * number for number in range(50)])
        with broker.consumer("here", group="g") as consumer:  # so that there is a group to be harmed, too
            consumer.take(50, 60)
        yield broker


class Arbitrary:
    """Random messages from a seed. `topic_id` is the id of an existing topic."""

    def __init__(self, seed, topic_id):
        self.chance = random.Random(seed)
        self.topic_id = topic_id

    def message(self, cls, version):
        message = cls()
        for field in cls.__fields__:
            if field.in_version(version):
                setattr(message, field.name, self.value(field, version))
        return message

    def value(self, field, version):
        if field.nullable_in(version) and self.chance.random() < 0.2:
            return None
        if field.is_array:
            return [self.one(field.type, version) for _ in range(self.chance.choice([0, 1, 1, 2]))]
        return self.one(field.type, version)

    def one(self, kind, version):
        if isinstance(kind, type):
            return self.message(kind, version)
        if kind.code in INTEGERS:
            return self.chance.choice(INTEGERS[kind.code])
        return {
            "bool": lambda: self.chance.random() < 0.5,
            "float64": lambda: self.chance.choice([0.0, -1.0, 1e-300, 1.5, math.inf, -math.inf, math.nan]),
            "string": lambda: self.chance.choice(STRINGS),
            "uuid": lambda: self.chance.choice([bytes(16), self.chance.randbytes(16), self.topic_id]),
        }.get(kind.name, lambda: self.chance.randbytes(self.chance.choice([0, 1, 61, 200])))()


@pytest.fixture
def topic_id(broker, connect):
    """Return the id of the topic `here`, which the tests may delete and create again."""
    wanted = [MetadataRequestTopic(name="here")]
    (topic,) = connect(broker)(MetadataRequest(topics=wanted)).topics
    return topic.topic_id


def is_settled(wire, header):
    """Return whether the broker answered or closed the connection, or waits for other members of a group."""
    wire.socket.settimeout(0.05)
    try:
        wire.receive(header)
    except (ConnectionError, TimeoutError):
        return True
    return True


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_no_request_however_odd_breaks_its_handler(broker, connect, caplog, topic_id, api):
    caplog.set_level(logging.ERROR)
    for version in range(api.versions[0], api.versions[1] + 1):
        arbitrary = Arbitrary(f"{api.name}-{version}", topic_id)
        for _ in range(ROUNDS):
            request = arbitrary.message(api.request, version)
            if hasattr(request, "max_wait_ms"):
                request.max_wait_ms = 0
            wire = connect(broker)
            assert is_settled(wire, wire.send(request, version))
            wire.close()
    assert [record.message for record in caplog.records] == []


@pytest.mark.parametrize("seed", range(4))
def test_damaged_frames_harm_no_one_else(broker, connect, caplog, topic_id, seed):
    caplog.set_level(logging.ERROR)
    arbitrary = Arbitrary(seed, topic_id)
    other = connect(broker)
    for _ in range(150):
        api = arbitrary.chance.choice(APIS)
        version = arbitrary.chance.randint(*api.versions)
        header = RequestHeader(api.key, version, 1, "fuzz")
        frame = bytearray(b"".join(encode_request(header, arbitrary.message(api.request, version))))
        for _ in range(arbitrary.chance.randint(1, 4)):
            frame[arbitrary.chance.randrange(4, len(frame))] = arbitrary.chance.randrange(256)
        wire = connect(broker)
        wire.socket.sendall(frame[: arbitrary.chance.randint(1, len(frame))])
        wire.close()
    versions = other.send(load()[18].request(client_software_name="a", client_software_version="1"))
    assert other.receive(versions).error_code == 0
    assert [record.message for record in caplog.records] == []


def test_requests_before_a_frame_of_an_impossible_size_are_answered(broker, connect):
    wire = connect(broker)
    header = RequestHeader(MetadataRequest.api_key, 9, 7, "hostile")
    frames = [b"".join(encode_request(header, MetadataRequest(topics=[]))), struct.pack(">i", -1)]
    wire.socket.sendall(b"".join(frames))
    assert wire.receive(header).brokers
    assert wire.is_closed()


def test_frames_of_impossible_sizes_close_the_connection(broker, connect):
    for size in (-1, -(2**31), 2**31 - 1, 104_857_601):
        wire = connect(broker)
        wire.socket.sendall(struct.pack(">i", size) + b"x" * 100)
        assert wire.is_closed()
