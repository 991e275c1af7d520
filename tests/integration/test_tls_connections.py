"""Connections before their TLS handshake, renewed keys, and the limit of connections."""

from __future__ import annotations

import contextlib
import socket
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.certificates import Certificates, make
from tests.integration.conftest import Wire

from barnabas.base.types import TopicPartition
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network import tls_keys
from barnabas.broker.server.run import BrokerServer
from barnabas.client import Admin
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.kafka.protocol.schema import Request
from barnabas.kafka.records import Record, encode_batch

#: the descriptors of this process
OPEN_FILES = Path("/proc/self/fd")


class TlsBroker:
    def __init__(self, folder: Path, **settings: str) -> None:
        self.certificates = make(folder)
        text = {
            "log.dirs": str(folder / "data"),
            "listeners": "SSL://127.0.0.1:0,PLAINTEXT://127.0.0.1:0",
            "ssl.keystore.location": str(self.certificates.server),
            "offsets.topic.num.partitions": "1",
        }
        self.server = BrokerServer(BrokerConfig.from_text(text | settings))

    def __enter__(self) -> TlsBroker:
        self.server.start()
        self.port = self.server.bound[0].port
        self.plain_port = self.server.bound[1].port
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def open(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=60)

    def refuses_another(self) -> bool:
        """Return whether the broker soon refuses another connection. A busy machine may accept one too many
        at first.
        """
        with self.open() as connection:
            return ends(connection)

    def certificate(self) -> bytes:
        """Return the certificate that the broker shows."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with self.open() as plain, context.wrap_socket(plain) as secured:
            shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return shown


def ends(connection: socket.socket) -> bool:
    """Return whether the broker soon ends the connection."""
    connection.settimeout(0.2)
    try:
        return is_closed(connection)
    except TimeoutError:
        return False


def is_closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def wait_until(condition: Callable[[], Any], seconds: float = 60) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_connections_count_before_they_speak_tls(tmp_path):
    settings = {"max.connections.per.ip": "2"}
    with TlsBroker(tmp_path, **settings) as broker, broker.open() as first, broker.open():
        wait_until(broker.refuses_another)
        first.close()
        wait_until(lambda: not broker.refuses_another())


@pytest.mark.skipif(not OPEN_FILES.is_dir(), reason="the system does not list open files")
def test_a_handshake_needs_one_file_descriptor(tmp_path):
    """The limit of connections leaves the other descriptors to the logs."""
    with TlsBroker(tmp_path) as broker, ExitStack() as clients:
        broker.certificate()
        before = len([*OPEN_FILES.iterdir()])
        for _ in range(20):
            clients.enter_context(broker.open())
        broker.certificate()  # the handshakes before it have begun
        assert len([*OPEN_FILES.iterdir()]) - before <= 2 * 20 + 2


def test_a_stop_does_not_wait_for_handshakes(tmp_path):
    with TlsBroker(tmp_path, **{"max.connections.per.ip": "1"}) as broker, broker.open() as silent:
        wait_until(broker.refuses_another)  # it was accepted
        began = time.monotonic()
        broker.server.stop()
        assert time.monotonic() - began < 40
        assert is_closed(silent)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@pytest.mark.parametrize(
    ("name", "alert"),
    [(None, "(HANDSHAKE_FAILURE|CERTIFICATE_REQUIRED)"), ("stranger", "UNKNOWN_CA")],
)
def test_client_learns_from_an_alert_why_its_certificate_is_rejected(tmp_path, version, name, alert):
    authority = str(tmp_path / "authority.pem")
    settings = {"ssl.client.auth": "required", "ssl.truststore.location": authority}
    with TlsBroker(tmp_path, **settings) as broker, broker.open() as plain:
        context = ssl.create_default_context(cafile=authority)
        context.minimum_version = context.maximum_version = version
        if name is not None:
            context.load_cert_chain(getattr(broker.certificates, name))
        with (
            pytest.raises(ssl.SSLError, match=alert),
            context.wrap_socket(plain, server_hostname="localhost") as secured,
        ):
            secured.recv(1)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (b"GET / HTTP/1.1\r\n\r\n", "it speaks HTTP"),
        (b"\0\0\0\x20\0\x12\0\0" + bytes(28), "it does not speak TLS"),
    ],
)
def test_who_does_not_speak_tls_is_named_in_one_line(tmp_path, caplog, said, told):
    with TlsBroker(tmp_path) as broker:
        for _ in range(3):
            with broker.open() as client:
                client.sendall(said)
                wait_until(lambda client=client: is_closed(client))
    lines = [record.getMessage() for record in caplog.records if told in record.getMessage()]
    assert len(lines) == 1


def framed(request: Request, version: int) -> tuple[RequestHeader, bytes]:
    header = RequestHeader(request.api_key, version, 7, "test")
    return header, b"".join(map(bytes, encode_request(header, request)))


def produce(value: bytes, acks: int = 1) -> tuple[RequestHeader, bytes]:
    records = encode_batch([Record(None, value, 1_700_000_000_000)])
    topic = TopicProduceData(name="pieces", partition_data=[PartitionProduceData(index=0, records=records)])
    return framed(ProduceRequest(acks=acks, timeout_ms=60_000, topic_data=[topic]), 9)


def answer(connection: socket.socket, header: RequestHeader) -> Any:
    size = int.from_bytes(exactly(connection, 4), "big")
    return parse_response(header, exactly(connection, size))


def exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        assert part
        data += part
    return data


def create_topic(connection: socket.socket) -> None:
    topics = [CreatableTopic(name="pieces", num_partitions=1, replication_factor=1)]
    header, frame = framed(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 7)
    connection.sendall(frame)
    assert answer(connection, header).topics[0].error_code == 0


@pytest.mark.parametrize("is_announced", [True, False], ids=["with close_notify", "without"])
def test_requests_of_a_client_that_ends_at_once_are_all_executed(tmp_path, is_announced):
    """Their handling takes several turns of the event loop, and the client waits for no response."""
    count = 5000
    with TlsBroker(tmp_path) as broker, broker.open() as plain:
        trust = ssl.create_default_context(cafile=broker.certificates.authority)
        client = trust.wrap_socket(plain, server_hostname="127.0.0.1")
        create_topic(client)
        client.sendall(produce(b"v", acks=0)[1] * count)
        if is_announced:
            client.setblocking(False)
            with contextlib.suppress(OSError):
                client.unwrap()
        client.close()
        admin, partition = Admin(f"127.0.0.1:{broker.plain_port}"), TopicPartition("pieces", 0)
        wait_until(lambda: admin.offsets([partition], "latest")[partition] == count)


def test_requests_that_come_in_pieces_by_several_connections_stay_whole(tmp_path):
    """The checksums of the records prove it."""
    with TlsBroker(tmp_path) as broker, ExitStack() as stack:
        trust = ssl.create_default_context(cafile=broker.certificates.authority)
        connections = []
        for _ in range(3):
            plain = stack.enter_context(broker.open())
            connections.append(stack.enter_context(trust.wrap_socket(plain, server_hostname="127.0.0.1")))
        create_topic(connections[0])
        # some are received in place, some in the shared buffer, some over several turns
        sizes = [10, 900_000, 1_000, 300_000, 20_000]
        frames = [[produce(bytes([n]) * size) for size in sizes] for n in range(len(connections))]
        streams = [b"".join(frame for _, frame in each) for each in frames]
        for start in range(0, max(map(len, streams)), 77_777):
            for connection, stream in zip(connections, streams, strict=True):
                connection.sendall(stream[start : start + 77_777])
        for connection, each in zip(connections, frames, strict=True):
            for header, _ in each:
                [topic] = answer(connection, header).responses
                assert topic.partition_responses[0].error_code == 0


def test_a_new_key_holds_for_new_connections(tmp_path, monkeypatch):
    monkeypatch.setattr("barnabas.broker.server.stages.upkeep.CHECK_MS", 50)
    with TlsBroker(tmp_path) as broker:
        before = broker.certificate()
        other = make_other(tmp_path)
        replace(broker.certificates.server, other.server.read_bytes())
        wait_until(lambda: broker.certificate() != before)


def test_a_key_without_its_certificate_changes_nothing(tmp_path, monkeypatch, caplog):
    checks = []
    load = tls_keys._load
    monkeypatch.setattr(tls_keys, "_load", lambda config: checks.append(config) or load(config))
    monkeypatch.setattr("barnabas.broker.server.stages.upkeep.CHECK_MS", 20)
    with TlsBroker(tmp_path) as broker:
        before = broker.certificate()
        good = broker.certificates.server.read_bytes()
        other = make_other(tmp_path).server.read_bytes()
        marker = b"-----BEGIN CERTIFICATE-----"
        replace(broker.certificates.server, other[: other.index(marker)] + good[good.index(marker) :])
        wait_until(lambda: "cannot renew the key of the listener" in caplog.text)
        seen = len(checks)
        wait_until(lambda: len(checks) > seen + 1)  # the same files are read again
        assert broker.certificate() == before
        assert caplog.text.count("cannot renew the key of the listener") == 1
        replace(broker.certificates.server, other)
        wait_until(lambda: broker.certificate() != before)


def replace(path: Path, content: bytes) -> None:
    """Replace the file atomically, because the broker may read it at any moment."""
    whole = path.with_suffix(".new")
    whole.write_bytes(content)
    whole.replace(path)


def make_other(folder: Path) -> Certificates:
    (folder / "other").mkdir()
    return make(folder / "other")


def test_single_addresses_may_have_other_limits(tmp_path):
    settings = {"max.connections.per.ip": "1", "max.connections.per.ip.overrides": "127.0.0.1:3,::1:7"}
    with TlsBroker(tmp_path, **settings) as broker, ExitStack() as exits:
        three = [exits.enter_context(broker.open()) for _ in range(3)]
        wait_until(broker.refuses_another)
        assert not any(map(ends, three))


def test_a_listener_may_have_a_limit_of_its_own(tmp_path, caplog):
    with TlsBroker(tmp_path, **{"listener.name.ssl.max.connections": "2"}) as broker, ExitStack() as exits:
        two = [exits.enter_context(broker.open()) for _ in range(2)]
        wait_until(broker.refuses_another)
        assert "listener.name.ssl.max.connections=2 reached" in caplog.text
        plain = exits.enter_context(socket.create_connection(("127.0.0.1", broker.plain_port), timeout=60))
        assert not ends(plain)
        assert not any(map(ends, two))
        two[0].close()
        wait_until(lambda: not broker.refuses_another())


def test_the_limit_of_a_listener_may_change_while_the_broker_runs(tmp_path):
    with TlsBroker(tmp_path) as broker, broker.open() as first, ExitStack() as exits:
        wire = Wire(f"127.0.0.1:{broker.plain_port}")
        exits.enter_context(wire.socket)
        for operation, value, refuses in ((0, "1", True), (1, None, False)):
            limit = AlterableConfig(
                name="listener.name.ssl.max.connections", config_operation=operation, value=value
            )
            resource = AlterConfigsResource(resource_type=4, resource_name="1", configs=[limit])
            (answer,) = wire(IncrementalAlterConfigsRequest(resources=[resource])).responses
            assert answer.error_code == 0, answer.error_message
            wait_until(lambda refuses=refuses: broker.refuses_another() is refuses)
        assert not ends(first)


def test_connections_over_the_rate_wait_but_those_of_brokers(tmp_path):
    with TlsBroker(tmp_path, **{"max.connection.creation.rate": "1"}) as broker:
        began = time.monotonic()
        for _ in range(12):  # ten at once, the others one a second
            broker.certificate()
        assert time.monotonic() - began > 1.5
