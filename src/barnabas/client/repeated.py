"""Sends one request repeatedly, and decodes its response only if it has changed."""

from __future__ import annotations

from typing import Any

from barnabas.kafka.protocol.schema import Request

#: bytes; data that begins with a larger size is not a response
MAX_RESPONSE = 2**28


class Repeated:
    """A request that is sent repeatedly. If a response equals the last one, it is not decoded again.

    Only one thread can use it at a time.

    Attributes:
        answer: the last decoded response; None before the first one. It stays the same object while the
            broker's response is the same.
    """

    def __init__(self, request: Request) -> None:
        self.request = request
        self.answer: Any = None
        #: the connection for which the frame was made; another one may use other API versions
        self.connection: object = None
        self.version = 0
        self.frame = bytearray()
        #: the last response, without its correlation id
        self.encoded = bytearray()
