"""The HTTP server of metrics: its answers and its limits."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base import http_responder as responding
from barnabas.base.environment.network import SocketNetwork
from barnabas.base.http_responder import RequestError, Responder, parse_request


def head(*lines):
    return "\r\n".join(lines).encode("latin-1")


def test_a_scrape_is_parsed():
    request = head("GET /metrics?x=1 HTTP/1.1", "Host: localhost:9404", "Accept: */*")
    assert parse_request(request, only_local=True) == ("GET", "/metrics", True)


@pytest.mark.parametrize(
    ("lines", "status"),
    [
        (["GARBAGE"], 400),
        (["GET metrics HTTP/1.1", "Host: a"], 400),
        (["GET /metrics HTTP/2", "Host: a"], 400),
        (["POST /metrics HTTP/1.1", "Host: localhost"], 405),
        (["GET /metrics HTTP/1.1"], 400),
        (["GET /metrics HTTP/1.1", "Host: a", "Host: b"], 400),
        (["GET /metrics HTTP/1.1", "Host: a b"], 400),
        (["GET /metrics HTTP/1.1", "Host: evil.example.org:9404"], 403),
        (["GET /metrics HTTP/1.1", "Host: 127.0.0.1.example.org"], 403),
    ],
)
def test_a_wrong_request_is_refused(lines, status):
    with pytest.raises(RequestError) as refused:
        parse_request(head(*lines), only_local=True)
    assert refused.value.status == status


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:9404", "[::1]:9404", "10.0.0.1"])
def test_names_that_nobody_else_can_give_are_served_locally(host):
    parse_request(head("GET / HTTP/1.1", f"Host: {host}"), only_local=True)


def test_elsewhere_any_name_is_served():
    parse_request(head("GET / HTTP/1.1", "Host: broker-1.example.org:9404"), only_local=False)


@given(st.binary(max_size=300))
def test_any_bytes_are_parsed_or_refused(data):
    try:
        method, path, _ = parse_request(data, only_local=False)
    except RequestError as error:
        assert error.status in (400, 403, 405)
    else:
        assert method in ("GET", "HEAD")
        assert path.startswith("/")


@asynccontextmanager
async def serving(handlers):
    responder = Responder("127.0.0.1", 0, SocketNetwork())
    responder.bind()
    await responder.start(handlers)
    port = int(responder.url.rpartition(":")[2])

    async def ask(data):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(data)
            return await reader.read()
        finally:
            writer.close()
            await writer.wait_closed()

    try:
        yield ask, port
    finally:
        await responder.stop()


async def many_pieces():
    for _ in range(3000):
        yield "x" * 99 + "\n"


def scrape(path, method="GET", version="1.1"):
    return f"{method} {path} HTTP/{version}\r\nHost: localhost\r\n\r\n".encode()


def run(handlers, scenario):
    async def whole():
        async with serving(handlers) as (ask, port):
            return await scenario(ask, port)

    return asyncio.run(asyncio.wait_for(whole(), 20))


def test_a_long_page_arrives_whole_in_chunks():
    async def scenario(ask, _port):
        answer = await ask(scrape("/metrics"))
        fields, _, body = answer.partition(b"\r\n\r\n")
        assert fields.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Transfer-Encoding: chunked" in fields
        whole = b""
        while body:
            size, _, rest = body.partition(b"\r\n")
            whole += rest[: int(size, 16)]
            body = rest[int(size, 16) + 2 :]
        assert whole == (b"x" * 99 + b"\n") * 3000
        old = await ask(scrape("/metrics", version="1.0"))
        assert old.partition(b"\r\n\r\n")[2] == whole

    run({"/metrics": many_pieces}, scenario)


def test_a_request_fed_byte_by_byte_is_answered():
    async def scenario(_ask, port):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for byte in scrape("/healthz"):
            writer.write(bytes([byte]))
            await writer.drain()
        answer = await reader.read()
        writer.close()
        assert answer.endswith(b"\r\n\r\nfine\n")

    run({"/healthz": lambda: (200, "fine")}, scenario)


def test_head_has_no_body_and_unknown_paths_name_the_known_ones():
    async def scenario(ask, _port):
        assert (await ask(scrape("/healthz", "HEAD"))).endswith(b"\r\n\r\n")
        missing = await ask(scrape("/../../etc/passwd"))
        assert missing.startswith(b"HTTP/1.1 404")
        assert b"/healthz" in missing

    run({"/healthz": lambda: (200, "fine")}, scenario)


def test_a_request_without_end_is_refused():
    async def scenario(ask, _port):
        answer = await ask(b"GET /" + b"a" * 100_000)
        assert answer.startswith((b"HTTP/1.1 431", b""))

    run({}, scenario)


def test_a_silent_client_is_told_so_and_closed(monkeypatch):
    monkeypatch.setattr(responding, "REQUEST_SECONDS", 0.05)

    async def scenario(ask, _port):
        assert (await ask(b"GET /metrics")).startswith(b"HTTP/1.1 408")

    run({}, scenario)


def test_no_more_connections_than_allowed(monkeypatch):
    monkeypatch.setattr(responding, "MAX_CONNECTIONS", 2)

    async def scenario(ask, port):
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(2)]
        await asyncio.sleep(0.05)
        reader, third = await asyncio.open_connection("127.0.0.1", port)
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
            await reader.readexactly(1)
        third.close()
        for _, writer in held:
            writer.close()
            await writer.wait_closed()
        await asyncio.sleep(0.05)
        assert (await ask(scrape("/healthz"))).startswith(b"HTTP/1.1 200")

    run({"/healthz": lambda: (200, "fine")}, scenario)


def test_an_error_before_the_first_piece_is_told(caplog):
    async def broken():
        raise ValueError("no")
        yield ""

    async def scenario(ask, _port):
        assert (await ask(scrape("/metrics"))).startswith(b"HTTP/1.1 500")

    run({"/metrics": broken}, scenario)
    assert "cannot write the metrics" in caplog.text


def test_a_client_that_does_not_read_is_cut_off_and_frees_its_place(monkeypatch):
    monkeypatch.setattr(responding, "ANSWER_SECONDS", 0.2)
    monkeypatch.setattr(responding, "MAX_LONG", 1)
    begun = asyncio.Event()

    async def endless():
        begun.set()
        while True:
            yield "x" * 100_000
            await asyncio.sleep(0)

    async def scenario(ask, port):
        _, lazy = await asyncio.open_connection("127.0.0.1", port, limit=1)
        lazy.write(scrape("/endless"))
        await begun.wait()
        monkeypatch.setattr(responding, "ANSWER_SECONDS", 30.0)  # for one that reads, on any machine
        assert b"xxx" in await ask(scrape("/metrics"))
        lazy.transport.abort()

    run({"/metrics": many_pieces, "/endless": endless}, scenario)
