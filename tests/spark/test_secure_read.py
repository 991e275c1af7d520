"""A task reads over TLS and SASL, and reports each problem in one line."""

from __future__ import annotations

import json
import ssl
import threading
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.parse import parse_qs

import pytest
from confluent_kafka import Producer
from scramp import ScramException, ScramMechanism
from tests.spark.certificates import PASSWORD as KEY_PASSWORD
from tests.spark.certificates import Certificates
from tests.spark.secure_proxy import Refused, SecureProxy, Step, secured

from barnabas.client.errors import AuthenticationError
from barnabas.spark.arrow import arrow_schema
from barnabas.spark.clients import consumer_settings
from barnabas.spark.fetch import read_ranges
from barnabas.spark.ranges import OffsetRange

Read = Callable[..., list[bytes]]
Stand = Callable[..., SecureProxy]
Begin = Callable[[], Step] | None

USER, PASSWORD = "ann", "correct horse"
VALUES = [b"one", b"two", b"three"]


def unsigned(part: dict[str, object]) -> str:
    return urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=")


#: librdkafka looks at the claims, and nobody here at the signature
SIGNED = f"{unsigned({'alg': 'RS256'})}.{unsigned({'sub': USER, 'iat': 0, 'exp': 2**32})}.{unsigned({})}"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def stand(tmp_path: Path) -> Iterator[Stand]:
    """Put a broker behind a proxy."""
    with ExitStack() as stack:

        def stand(tls: ssl.SSLContext | None = None, mechanism: str = "", begin: Begin = None) -> SecureProxy:
            return stack.enter_context(secured(tmp_path / "data", tls, mechanism, begin))

        yield stand


@pytest.fixture
def read() -> Read:
    def read(proxy: SecureProxy, **settings: str) -> list[bytes]:
        client = {"bootstrap.servers": proxy.address, **dotted(settings)}
        batches = read_ranges(
            [OffsetRange("t", 0, 0, len(VALUES))],
            consumer_settings(client),
            arrow_schema(["value"]),
            fail_on_data_loss=True,
            poll_timeout_s=60,
        )
        return [value for batch in batches for value in batch.column("value").to_pylist()]

    return read


def dotted(settings: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in settings.items()}


def write(proxy: SecureProxy, **settings: str) -> None:
    """Write with librdkafka, which gets the same settings."""
    producer = Producer({"bootstrap.servers": proxy.address, "log_level": 0, **dotted(settings)})
    for value in VALUES:
        producer.produce("t", value)
    assert producer.flush(60) == 0


def check_both_ways(proxy: SecureProxy, read: Read, **settings: str) -> None:
    write(proxy, **settings)
    assert read(proxy, **settings) == VALUES


def test_tls_with_an_authority_of_ones_own(certificates: Certificates, stand: Stand, read: Read) -> None:
    proxy = stand(certificates.server_context())
    check_both_ways(proxy, read, security_protocol="SSL", ssl_ca_location=str(certificates.authority))


def test_a_client_shows_its_certificate(certificates: Certificates, stand: Stand, read: Read) -> None:
    proxy = stand(certificates.server_context(asks_client=True))
    tls = {
        "security_protocol": "ssl",
        "ssl_ca_pem": certificates.authority.read_text(),
        "ssl_key_password": KEY_PASSWORD,
    }
    files = {
        "ssl_certificate_location": str(certificates.client),
        "ssl_key_location": str(certificates.client_key),
    }
    check_both_ways(proxy, read, **tls, **files)
    texts = {
        "ssl_certificate_pem": certificates.client.read_text(),
        "ssl_key_pem": certificates.client_key.read_text(),
    }
    assert read(proxy, **tls, **texts) == VALUES


def test_a_certificate_that_is_not_trusted_fails_the_task_at_once(
    certificates: Certificates, stand: Stand, read: Read
) -> None:
    proxy = stand(certificates.server_context())
    with pytest.raises(
        AuthenticationError,
        match=f"certificate of the broker at {proxy.address} is not trusted: unable to get local issuer",
    ):
        read(proxy, security_protocol="ssl")
    unchecked = {"security_protocol": "ssl", "enable_ssl_certificate_verification": "false"}
    check_both_ways(proxy, read, **unchecked)


def knows_password(message: bytes) -> tuple[bytes, bool]:
    if message != f"\0{USER}\0{PASSWORD}".encode():
        raise Refused("Authentication failed: Invalid username or password")
    return b"", True


def scram_server(mechanism: str) -> Begin:
    """Run SCRAM with the library of the client. tests/compat compares it with Kafka."""
    known = ScramMechanism(mechanism).make_auth_info(PASSWORD)

    def begin() -> Step:
        server = ScramMechanism(mechanism).make_server({USER: known}.__getitem__)

        def step(message: bytes) -> tuple[bytes, bool]:
            text = message.decode()
            try:
                if text.startswith("n,"):
                    server.set_client_first(text)
                    return server.get_server_first().encode(), False
                server.set_client_final(text)
                return server.get_server_final().encode(), True
            except (ScramException, KeyError):
                raise Refused(
                    "Authentication failed during authentication due to invalid credentials"
                ) from None

        return step

    return begin


def takes_token(check: Callable[[str, dict[str, str]], None]) -> Begin:
    """Accept a token as Kafka does: a bad one gets an answer with a reason first, and then an error."""
    refused = b'{"status":"invalid_token"}'

    def begin() -> Step:
        def step(message: bytes) -> tuple[bytes, bool]:
            if message == b"\x01":
                raise Refused(refused.decode())
            assert message.startswith(b"n,,\x01auth=Bearer ")
            pairs = dict(pair.split("=", 1) for pair in message.decode().split("\x01")[1:-2])
            try:
                check(pairs.pop("auth").removeprefix("Bearer "), pairs)
            except ValueError:
                return refused, False
            return b"", True

        return step

    return begin


PLAIN: tuple[str, Begin] = ("PLAIN", lambda: knows_password)
MECHANISMS = [PLAIN, *((name, scram_server(name)) for name in ("SCRAM-SHA-256", "SCRAM-SHA-512"))]


@pytest.mark.parametrize(("mechanism", "begin"), MECHANISMS)
def test_a_password(mechanism: str, begin: Begin, stand: Stand, read: Read) -> None:
    proxy = stand(None, mechanism, begin)
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": mechanism, "sasl_username": USER}
    check_both_ways(proxy, read, **sasl, sasl_password=PASSWORD)
    with pytest.raises(
        AuthenticationError, match=f"{proxy.address} rejects the login by {mechanism}: Authentication failed"
    ):
        read(proxy, **sasl, sasl_password="guess")


def test_a_password_over_tls(certificates: Certificates, stand: Stand, read: Read) -> None:
    proxy = stand(certificates.server_context(), *PLAIN)
    tls = {"security_protocol": "sasl_ssl", "ssl_ca_location": str(certificates.authority)}
    check_both_ways(proxy, read, **tls, sasl_mechanisms="PLAIN", sasl_username=USER, sasl_password=PASSWORD)


def test_a_mechanism_that_the_broker_does_not_have(stand: Stand, read: Read) -> None:
    proxy = stand(None, *PLAIN)
    with pytest.raises(AuthenticationError, match="does not offer SCRAM-SHA-256: it has PLAIN"):
        read(proxy, security_protocol="sasl_plaintext", sasl_mechanism="SCRAM-SHA-256", sasl_username=USER)


def test_a_token_that_nobody_has_signed(stand: Stand, read: Read) -> None:
    def check(token: str, extensions: dict[str, str]) -> None:
        claims = json.loads(urlsafe_b64decode(token.split(".")[1] + "=="))
        if (
            claims["sub"] != USER
            or claims["scope"] != ["read", "write"]
            or claims["exp"] - claims["iat"] != 60
        ):
            raise ValueError

    proxy = stand(None, "OAUTHBEARER", takes_token(check))
    sasl = {
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "OAUTHBEARER",
        "enable_sasl_oauthbearer_unsecure_jwt": "true",
    }
    config = "principal={} scope=read,write lifeSeconds=60"
    check_both_ways(proxy, read, **sasl, sasl_oauthbearer_config=config.format(USER))
    with pytest.raises(AuthenticationError, match=r"rejects the login by OAUTHBEARER: .*invalid_token"):
        read(proxy, **sasl, sasl_oauthbearer_config=config.format("bob"))


@pytest.fixture(params=["http", "https"])
def token_endpoint(request: pytest.FixtureRequest, certificates: Certificates) -> Iterator[str]:
    """Give a token to clients that know the secret."""

    class Endpoint(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            secret = b64decode(self.headers["Authorization"].removeprefix("Basic "))
            good = secret == b"spark:s3cret" and form == {
                "grant_type": ["client_credentials"],
                "scope": ["kafka"],
            }
            body = json.dumps({"access_token": SIGNED, "token_type": "bearer", "expires_in": 3600}).encode()
            self.send_response(200 if good else 401)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    if request.param == "https":
        server.socket = certificates.server_context().wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"{request.param}://127.0.0.1:{server.server_port}/token"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_token_from_an_endpoint(
    token_endpoint: str, certificates: Certificates, stand: Stand, read: Read
) -> None:
    def check(token: str, extensions: dict[str, str]) -> None:
        if (token, extensions) != (SIGNED, {"tenant": "a"}):
            raise ValueError

    proxy = stand(None, "OAUTHBEARER", takes_token(check))
    sasl = {
        "security_protocol": "sasl_plaintext",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauthbearer_method": "oidc",
        "sasl_oauthbearer_token_endpoint_url": token_endpoint,
        "sasl_oauthbearer_client_id": "spark",
        "sasl_oauthbearer_scope": "kafka",
        "sasl_oauthbearer_extensions": "tenant=a",
    }
    if token_endpoint.startswith("https"):
        with pytest.raises(
            AuthenticationError, match=f"{token_endpoint} returned no token: .*certificate verif"
        ):
            read(proxy, **sasl, sasl_oauthbearer_client_secret="s3cret")
        pem = {"https_ca_pem": certificates.authority.read_text()}
        check_both_ways(proxy, read, **sasl, **pem, sasl_oauthbearer_client_secret="s3cret")
        sasl["https_ca_location"] = str(certificates.authority)
    check_both_ways(proxy, read, **sasl, sasl_oauthbearer_client_secret="s3cret")
    with pytest.raises(AuthenticationError, match=f"{token_endpoint} returned no token: HTTP Error 401"):
        read(proxy, **sasl, sasl_oauthbearer_client_secret="guess")
