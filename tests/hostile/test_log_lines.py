"""Whatever names clients send, each message in the log is one short printable line."""

from __future__ import annotations

import contextlib
import logging
import socket

import pytest
from tests.hostile.generated import Shape, World, frame

from barnabas.base.text import shown
from barnabas.broker.server.handlers import load
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.find_coordinator import FindCoordinatorRequest
from barnabas.kafka.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.testing import BarnabasBroker

FORGED = "g\nERROR [forged] all is lost\r\x1b[2J\x1b]0;title\x07\u2028\u202e"
NAMES = {"with control characters": FORGED, "of 30 KB": "n" * 30_000}
APIS = list(load().values())


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_names_of_clients_are_rendered_before_they_are_logged(name, caplog):
    caplog.set_level(logging.DEBUG, "barnabas")
    with BarnabasBroker({"group.initial.rebalance.delay.ms": "0"}) as broker:
        for api in APIS:
            for version in (api.versions[0], api.versions[1]):
                for generation in (0, -1):
                    likely = {"validate_only": False, "allow_auto_topic_creation": True, "member_epoch": 0}
                    likely |= {"generation_id": generation, "group_instance_id": name}
                    shape = Shape("", None, text=name, max_elements=3, likely=likely)
                    _send(broker.bootstrap_servers, frame(api.request, version, shape, World()))
        _take_over_a_static_member(broker.bootstrap_servers, name)
        _send(broker.bootstrap_servers, b"GET /" + name.encode() + b" HTTP/1.1\r\n\r\n")
    ours = [record for record in caplog.records if record.name.startswith("barnabas")]
    assert any(shown(name, 20)[:20] in record.getMessage() for record in ours)
    for record in ours:
        message = record.getMessage()
        assert message.isprintable(), repr(message)
        assert len(message) < 1024, message
        assert not record.exc_info, message


def _take_over_a_static_member(address: str, name: str) -> None:
    """Replace a static member, so that the broker logs names that the client sent:
    group, member, instance.
    """
    join = JoinGroupRequest(
        group_id=f"{name[:-1]}c",  # `name` may be a share group by now
        session_timeout_ms=10_000,
        rebalance_timeout_ms=1000,
        protocol_type="consumer",
        group_instance_id=name[:-10],
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    requests = [(FindCoordinatorRequest(key="g"), 3), (join, 5), (join, 5)]
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as client:
        for number, (request, version) in enumerate(requests):
            header = RequestHeader(request.api_key, version, number, name)
            client.sendall(b"".join(bytes(chunk) for chunk in encode_request(header, request)))
            with client.makefile("rb") as received:
                answer = received.read(int.from_bytes(received.read(4), "big"))
            assert parse_response(header, answer).error_code == 0


def _send(address: str, data: bytes) -> None:
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=0.1) as client:
        client.sendall(data)
        with contextlib.suppress(TimeoutError):  # it waits for other members, say
            client.recv(4)
