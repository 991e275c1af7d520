"""Asks the broker at the moment when a client stops waiting, to find out whether the broker caused the wait.

It uses its own connection, so a defect of the client's library or of its connections has no effect.
"""

from __future__ import annotations

import itertools
import socket
import struct
import time
from typing import Any

from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.describe_transactions import DescribeTransactionsRequest
from barnabas.kafka.protocol.schema import Request

#: how long the broker may be without an answer: longer than any fault of the soak
SECONDS = 60.0
#: between two looks: an end of a transaction that is under way is over by then
PAUSE = 5.0
_CODE_OF_LOADING = (14, 15, 16)


def ask(bootstrap: str, transactional_id: str) -> dict[str, Any]:
    """Return fields for the history: whether the broker `answered`, and two `states`
    of the transactional id.
    """
    states = []
    try:
        states.append(_state(bootstrap, transactional_id))
        if transactional_id:
            time.sleep(PAUSE)
            states.append(_state(bootstrap, transactional_id))
    except TimeoutError:
        return {"answered": False, "states": states}
    return {"answered": True, "states": states}


def _state(bootstrap: str, transactional_id: str) -> str:
    """Return the state of the transactional id, or "" if there is none.

    Raises:
        TimeoutError: there is no answer to any attempt.
    """
    deadline = time.monotonic() + SECONDS
    servers = itertools.cycle(bootstrap.split(","))  # the id's coordinator is one of them
    while (left := deadline - time.monotonic()) > 0:
        server = next(servers)
        try:
            if not transactional_id:
                _call(server, ApiVersionsRequest(), 0, left)
                return ""
            request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
            (found,) = _call(server, request, 0, left).transaction_states
            if found.error_code not in _CODE_OF_LOADING:
                return str(found.transaction_state)
        except (OSError, EOFError):  # it is down, or starting
            pass
        time.sleep(0.5)
    raise TimeoutError


def _call(server: str, request: Request, version: int, seconds: float) -> Any:
    host, _, port = server.rpartition(":")
    header = RequestHeader(request.api_key, version, 1, "witness")
    with socket.create_connection((host, int(port)), timeout=seconds) as connection:
        connection.sendall(b"".join(bytes(chunk) for chunk in encode_request(header, request)))
        stream = connection.makefile("rb")
        (size,) = struct.unpack(">i", _exactly(stream, 4))
        return parse_response(header, _exactly(stream, size))


def _exactly(stream: Any, size: int) -> bytes:
    data: bytes = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data
