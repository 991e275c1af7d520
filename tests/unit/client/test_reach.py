"""Checks whether a broker can be reached, and the errors if not."""

import socket
import threading
from contextlib import contextmanager

import pytest

from barnabas.client import reach
from barnabas.client.addresses import Address, parse_servers
from barnabas.client.errors import ClientError
from barnabas.kafka.protocol.codec import encode
from barnabas.kafka.protocol.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.kafka.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from barnabas.testing import BarnabasBroker


@contextmanager
def server(*replies):
    """A server that answers each message of a connection with one of `replies`, then closes it. None sends
    nothing.
    """
    with socket.create_server(("127.0.0.1", 0)) as listening:
        ended = threading.Event()

        def serve():
            try:
                while True:
                    taken, _ = listening.accept()
                    with taken:
                        for reply in replies:
                            request = taken.recv(4096)
                            if reply is None:
                                ended.wait()
                            elif request:
                                taken.sendall(reply(request) if callable(reply) else reply)
            except OSError:
                pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            listening.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it answers like a web server"),
        (b"\x15\x03\x03\0\x02\x02\x28", "it answers in TLS"),
        (b"SSH-2.0-OpenSSH_9.2\r\n", "it answers like an SSH server"),
        (b"\xff\xff\xff\xff", "what listens there is not a Kafka broker"),
        (b"\0\0\0\x02ab", "its answer is not one of a Kafka broker"),
        (b"", "it closes the connection"),
    ],
)
def test_what_is_no_broker_is_named(reply, words):
    with server(reply) as address, pytest.raises(ClientError, match=words) as failure:
        reach.require_broker(address)
    assert address in str(failure.value)


def test_silence_is_named(monkeypatch):
    monkeypatch.setattr(reach, "_ANSWER_S", 0.05)
    with server(None) as address, pytest.raises(ClientError, match=r"does not answer within 0\.05 s"):
        reach.require_broker(address)


def test_an_address_that_takes_no_connection_is_named():
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        address = full.getsockname()
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:  # the queue of connections is full then
            each.setblocking(False)
            each.connect_ex(address)
        with pytest.raises(ClientError, match=r"no connection within 0\.05 s"):
            reach.require_broker(f"127.0.0.1:{address[1]}", 0.05)
        for each in waiting:
            each.close()


def test_a_name_that_takes_too_long_to_resolve_is_named(monkeypatch):
    resolved = threading.Event()

    def resolve(*arguments, **options):
        resolved.wait()
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", resolve)
    with pytest.raises(ClientError, match=r"the name host does not resolve within 0\.05 s"):
        reach.require_broker("host:9092", 0.05)
    resolved.set()


def test_a_refused_connection_and_an_unknown_name_are_named_for_each_address(unknown_names):
    with pytest.raises(ClientError) as failure:
        reach.require_broker("127.0.0.1:1,no-such-host.invalid:9092", 20)
    assert "127.0.0.1:1: connection refused" in str(failure.value)
    assert "the name no-such-host.invalid does not resolve" in str(failure.value)


@pytest.mark.parametrize("host", ["a..b", "x" * 64])
def test_what_cannot_be_a_host_is_named(host):
    with pytest.raises(ClientError, match=r"is not a host name|does not resolve"):
        reach.require_broker(f"{host}:9092", 20)


def test_one_broker_of_the_list_is_enough():
    with BarnabasBroker() as broker:
        reach.require_broker(f"127.0.0.1:1,{broker.bootstrap_servers}", 20)


def test_an_advertised_address_that_nobody_reaches_is_named():
    def answer(response, version):
        return lambda request: frame(request[8:12] + encode(response, version))

    def frame(body):
        return len(body).to_bytes(4, "big") + body

    served = ApiVersionsResponse(api_keys=[ApiVersion(api_key=3, min_version=1, max_version=1)])
    metadata = MetadataResponse(brokers=[MetadataResponseBroker(node_id=1, host="127.0.0.1", port=1)])
    with server(answer(served, 0), answer(metadata, 1)) as address:
        with pytest.raises(ClientError, match=r"127\.0\.0\.1:1: connection refused") as failure:
            reach.require_broker(address, 20)
        assert "advertised.listeners" in str(failure.value)


def test_addresses_are_read():
    assert parse_servers("a:1, [::1]:2") == [Address("a", 1), Address("::1", 2)]
    assert str(Address("::1", 2)) == "[::1]:2"


@pytest.mark.parametrize(
    "text",
    ["", " ", "a", "a:", ":1", "a:b", "a:0", "a:65536", "a:1,", "kafka://a:1", "a b:1", "a:1:2", "[a]:1"],
)
def test_what_is_no_address_is_said(text):
    with pytest.raises(ClientError, match=r"HOST:PORT|port is a number|leave out"):
        parse_servers(text)
