"""Data that is received into a buffer that connections share."""

import asyncio

from barnabas.broker.server.network.in_place import SHARED_BYTES, SharedReceiver


class Owner(asyncio.Protocol):
    def __init__(self):
        self.received = []
        self.lost = False

    def data_received(self, data):
        self.received.append(data)

    def connection_lost(self, exc):
        self.lost = True


def fill(receiver: SharedReceiver, data: bytes) -> None:
    """Fill the buffer as a transport does."""
    receiver.get_buffer(len(data))[: len(data)] = data
    receiver.buffer_updated(len(data))


def test_what_one_connection_receives_stays_when_another_one_uses_the_buffer():
    buffer = memoryview(bytearray(SHARED_BYTES))
    one, other = Owner(), Owner()
    receivers = [SharedReceiver(owner, buffer) for owner in (one, other)]
    fill(receivers[0], b"one and more")
    fill(receivers[1], b"other")
    fill(receivers[0], b"on")
    assert (one.received, other.received) == ([b"one and more", b"on"], [b"other"])


def test_the_owner_is_told_of_everything_else():
    owner = Owner()
    SharedReceiver(owner, memoryview(bytearray(SHARED_BYTES))).connection_lost(None)
    assert owner.lost
