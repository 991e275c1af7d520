"""Keys of a broker that are renewed while clients use it. SIGHUP makes the broker read them at once
(`TlsKeys`).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.integration.conftest import Wire
from tests.views import view_of

from barnabas.base.environment.blocking import Threads
from barnabas.base.environment.clock import SystemClock
from barnabas.base.tls.certificates import Authority
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.network.tls import tls_context
from barnabas.broker.server.network.tls_keys import TlsKeys
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.framing import RequestHeader, encode_request
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

#: `BARNABAS_ROTATIONS=1000` tries as many: 16,816 requests, none failed
ROTATIONS = int(os.environ.get("BARNABAS_ROTATIONS", "20"))
REQUEST = b"".join(encode_request(RequestHeader(18, 0, 7, "load"), ApiVersionsRequest()))


class Load:
    """A client that sends requests on one connection as long as it can, and on a new connection each time."""

    def __init__(self, connect: Callable[[], ssl.SSLSocket]) -> None:
        self._connect = connect
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.asked = 0
        self.failure: BaseException | None = None
        self._thread.start()

    def end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            with self._connect() as old:
                while not self._stop.is_set():
                    _ask(old)
                    with self._connect() as new:
                        _ask(new)
                    self.asked += 2
        except BaseException as error:
            self.failure = error


def _ask(connection: ssl.SSLSocket) -> None:
    connection.sendall(REQUEST)
    answer = b""
    while len(answer) < 4 or len(answer) < 4 + int.from_bytes(answer[:4], "big"):
        received = connection.recv(65_536)
        assert received, "the broker has closed a connection"
        answer += received


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_keys_are_renewed_under_load_and_no_request_fails(tmp_path: Path) -> None:
    """Open connections continue with their first key, and a new connection gets a complete new key."""
    authority = Authority.create("rotations", datetime.now(UTC))
    trusted, key = tmp_path / "trusted.pem", tmp_path / "server.pem"
    trusted.write_bytes(authority.certificate)

    def renew() -> bytes:
        """Install another certificate, and return it as clients see it."""
        issued = authority.issue("broker", ["127.0.0.1"], datetime.now(UTC))
        key.with_suffix(".new").write_bytes(issued.pem)
        key.with_suffix(".new").replace(key)
        return ssl.PEM_cert_to_DER_cert(issued.certificate.decode())

    renew()
    command = [
        *(sys.executable, "-m", "barnabas.cli", "start", "--data", str(tmp_path / "data")),
        *("--set", "listeners=SSL://127.0.0.1:0", "--set", f"ssl.keystore.location={key}"),
    ]
    context = ssl.create_default_context(cafile=str(trusted))
    loads: list[Load] = []
    with (tmp_path / "log").open("wb") as log:
        broker = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log)
    try:
        assert broker.stdout is not None
        ready = broker.stdout.readline().decode()
        assert ready.startswith("ready "), (tmp_path / "log").read_text()
        port = int(ready.rpartition(":")[2])

        def connect() -> ssl.SSLSocket:
            plain = socket.create_connection(("127.0.0.1", port), timeout=120)
            return context.wrap_socket(plain, server_hostname="127.0.0.1")

        def shown() -> bytes | None:
            with connect() as connection:
                return connection.getpeercert(binary_form=True)

        loads += [Load(connect), Load(connect)]
        for _ in range(ROTATIONS):
            wanted = renew()
            deadline = time.monotonic() + 120
            while True:
                broker.send_signal(signal.SIGHUP)
                if shown() == wanted:
                    break
                assert time.monotonic() < deadline, (tmp_path / "log").read_text()
                assert not any(load.failure for load in loads)
    finally:
        for load in loads:
            load.end()
        broker.terminate()
        broker.communicate(timeout=120)
    assert [load.failure for load in loads] == [None, None]
    assert all(load.asked for load in loads)
    print(f"{ROTATIONS} keys, {sum(load.asked for load in loads)} requests")


def test_a_key_that_is_replaced_while_it_is_read_is_shown_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Earlier, the certificate and its check could come from two keys, and the old one stayed."""
    authority = Authority.create("rotations", datetime.now(UTC))
    key = tmp_path / "server.pem"

    def renew() -> bytes:
        issued = authority.issue("broker", ["127.0.0.1"], datetime.now(UTC))
        key.write_bytes(issued.pem)
        return ssl.PEM_cert_to_DER_cert(issued.certificate.decode())

    renew()
    config = BrokerConfig.from_text({"ssl.keystore.location": str(key)})
    keys = TlsKeys(view_of(config=config, clock=SystemClock()), "SSL")
    renew()
    written: list[bytes] = []

    def context_of_the_key_before(config: BrokerConfig) -> ssl.SSLContext:
        context = tls_context(config)
        if not written:
            written.append(renew())
        return context

    monkeypatch.setattr("barnabas.broker.server.network.tls_keys.tls_context", context_of_the_key_before)

    async def check() -> None:
        threads = Threads().pool("keys", 1)
        await keys.check(threads)
        await threads.close()

    asyncio.run(check())
    assert [_shown_by(keys.context())] == written


def _shown_by(context: ssl.SSLContext) -> bytes | None:
    """Return the certificate that a client gets, after a handshake in memory."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), context.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(3):
        for end in ends:
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return ends[0].getpeercert(binary_form=True)


def test_keys_are_altered_while_the_broker_runs_and_stay_after_a_restart(tmp_path: Path) -> None:
    """The change is that of kafka-configs (KIP-226): for one listener of one broker. An unusable key is
    rejected.
    """
    authority, other = (Authority.create(name, datetime.now(UTC)) for name in ("rotations", "others"))
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.certificate + other.certificate)
    paths = [tmp_path / f"{name}.pem" for name in ("first", "second", "lacking")]
    hosts = (["127.0.0.1"], ["127.0.0.1", "broker"], ["elsewhere"])
    for path, named in zip(paths, hosts, strict=True):
        signer = authority if path == paths[0] else other
        path.write_bytes(signer.issue("broker", named, datetime.now(UTC)).pem)
    first, second, lacking = map(str, paths)
    config = BrokerConfig.from_text(
        {
            "log.dirs": str(tmp_path / "data"),
            "listeners": "PLAINTEXT://127.0.0.1:0,SSL://127.0.0.1:0,INSIDE://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,INSIDE:SSL",
            "ssl.keystore.location": first,
        }
    )
    name = "listener.name.ssl.ssl.keystore.location"

    def issuer(server: BrokerServer, listener: str) -> str:
        address = next(each for each in server.bound if each.name == listener)
        context = ssl.create_default_context(cafile=str(trusted))
        plain = socket.create_connection((address.host, address.port), timeout=60)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as connection:
            found = connection.getpeercert()
        assert found is not None
        return dict(pair[0] for pair in found["issuer"])["commonName"]  # type: ignore[misc,index]

    def alter(wire: Wire, *changes: tuple[str, str | None], broker: str = "1") -> tuple[int, str]:
        configs = [
            AlterableConfig(name=each, config_operation=0 if value is not None else 1, value=value)
            for each, value in changes
        ]
        resource = AlterConfigsResource(resource_type=4, resource_name=broker, configs=configs)
        (answer,) = wire(IncrementalAlterConfigsRequest(resources=[resource])).responses
        return answer.error_code, answer.error_message or ""

    def wait_for(server: BrokerServer, wanted: str) -> None:
        deadline = time.monotonic() + 60
        while issuer(server, "SSL") != wanted:
            assert time.monotonic() < deadline

    server = BrokerServer(config)
    server.start()
    try:
        wire = Wire(server.bound[0].address)
        for changes, broker, told in (
            ([(name, str(tmp_path / "none.pem"))], "1", "cannot be read"),
            ([(name, str(trusted))], "1", "must be a PEM file with a private key"),
            ([(name, lacking)], "1", "lacks 127.0.0.1, which the present one names"),
            ([(name, second)], "", "can be set for a single broker only"),
            ([("ssl.keystore.location", second)], "1", "or alter listener.name.NAME.ssl.keystore.location"),
            ([("listener.name.ssl.ssl.client.auth", "none")], "1", "is read at start only"),
        ):
            code, message = alter(wire, *changes, broker=broker)
            assert code == 42 and told in message
        assert issuer(server, "SSL") == "rotations"
        assert alter(wire, (name, second), ("listener.name.ssl.ssl.key.password", "sesame")) == (0, "")
        wait_for(server, "others")
        assert issuer(server, "INSIDE") == "rotations"
        described = wire(
            DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=4, resource_name="1")])
        )
        shown = {each.name: (each.value, each.config_source) for each in described.results[0].configs}
        assert shown[name] == (second, 2)
        assert shown["listener.name.ssl.ssl.key.password"] == (None, 2)
        wire.close()
    finally:
        server.stop()
    server = BrokerServer(config)
    server.start()
    try:
        assert issuer(server, "SSL") == "others"
        wire = Wire(server.bound[0].address)
        assert alter(wire, (name, None), ("listener.name.ssl.ssl.key.password", None))[1].startswith(
            "the certificate of ssl.keystore.location"
        )
        names = ("listener.name.ssl.ssl.keystore.certificate.chain", "listener.name.ssl.ssl.keystore.key")
        issued = authority.issue("broker", hosts[1], datetime.now(UTC))
        inline = zip(names, (issued.certificate.decode(), issued.key.decode()), strict=True)
        # a place and a key are refused together: the place that the broker was started with is still there
        assert "are both set" in alter(wire, *inline)[1]
        wire.close()
    finally:
        server.stop()
