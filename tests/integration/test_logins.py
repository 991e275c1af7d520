"""Listeners with TLS and SASL, with the usual clients."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import ssl
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer
from tests.certificates import Certificates, make
from tests.ports import held_port

from barnabas.base.environment.network import SocketNetwork
from barnabas.base.errors import ConfigError, ErrorCode
from barnabas.broker.config import BrokerConfig
from barnabas.broker.interbroker import Channel, NotConnectedError
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.framing import RequestHeader, encode_request, parse_response
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.metadata import MetadataRequest
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.testing import BarnabasCluster
from barnabas.testing.running_broker import BrokerSettings

PASSWORD = "wonderland, =ö"
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class SecureBroker:
    """A broker with a listener for each protocol, and the user alice."""

    def __init__(self, folder: Path, certificates: Certificates, **settings: str) -> None:
        names = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        text = {
            "log.dirs": str(folder),
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "ssl.keystore.location": str(certificates.server),
            "ssl.truststore.location": str(certificates.authority),
            "offsets.topic.num.partitions": "1",
        }
        self.server = BrokerServer(BrokerConfig.from_text(text | settings))
        self.authority = str(certificates.authority)

    def __enter__(self) -> SecureBroker:
        self.server.start()
        self.set_password("alice", PASSWORD)
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    def address(self, name: str) -> str:
        return next(endpoint.address for endpoint in self.server.bound if endpoint.name == name)

    def settings(
        self, name: str, mechanism: str = "SCRAM-SHA-512", password: str = PASSWORD
    ) -> dict[str, Any]:
        """Return settings of librdkafka."""
        return {
            "bootstrap.servers": self.address(name),
            "security.protocol": name,
            **({"ssl.ca.location": self.authority} if name.endswith("SSL") else {}),
            **(
                {"sasl.mechanism": mechanism, "sasl.username": "alice", "sasl.password": password}
                if name.startswith("SASL")
                else {}
            ),
        }

    def set_password(self, user: str, password: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address("PLAINTEXT")})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion(
                user, ScramCredentialInfo(mechanism, 4096), password.encode()
            )
            admin.alter_user_scram_credentials([change])[user].result(60)


@pytest.fixture(scope="module")
def broker(certificates: Certificates, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with SecureBroker(tmp_path_factory.mktemp("secure"), certificates) as broker:
        yield broker


def produce(settings: dict[str, Any], topic: str, *values: bytes) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 60_000})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None] * len(values)


def consume(settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({**settings, "group.id": f"of-{topic}", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    try:
        found: list[bytes] = []
        while len(found) < count:
            message = consumer.poll(60)
            assert message is not None and message.error() is None
            found.append(message.value())
        return found
    finally:
        consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("name", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_librdkafka_logs_in(broker: SecureBroker, name: str, mechanism: str) -> None:
    settings = broker.settings(name, mechanism)
    topic = f"by-{name}-{mechanism}"
    values = [b"%d" % number for number in range(100)]
    produce(settings, topic, *values)
    assert consume(settings, topic, 100) == values


def test_large_records_pass_tls_both_ways(broker: SecureBroker) -> None:
    settings = {
        **broker.settings("SSL"),
        "message.max.bytes": 10_000_000,
        "fetch.message.max.bytes": 10_000_000,
    }
    values = [bytes([number]) * 900_000 for number in range(20)]
    produce(settings, "large", *values)
    assert consume(settings, "large", 20) == values


def test_kafka_python_logs_in_over_tls(broker: SecureBroker) -> None:
    produce(broker.settings("PLAINTEXT"), "for-kafka-python", b"one")
    consumer = KafkaConsumer(
        "for-kafka-python",
        bootstrap_servers=broker.address("SASL_SSL"),
        security_protocol="SASL_SSL",
        ssl_cafile=broker.authority,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="alice",
        sasl_plain_password=PASSWORD,
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    assert next(iter(consumer)).value == b"one"
    consumer.close()


def test_aiokafka_logs_in_over_tls(broker: SecureBroker) -> None:
    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.address("SASL_SSL"),
            security_protocol="SASL_SSL",
            ssl_context=ssl.create_default_context(cafile=broker.authority),
            sasl_mechanism="PLAIN",
            sasl_plain_username="alice",
            sasl_plain_password=PASSWORD,
        )
        await producer.start()
        try:
            await producer.send_and_wait("by-aiokafka", b"one")
        finally:
            await producer.stop()

    asyncio.run(scenario())
    assert consume(broker.settings("SSL"), "by-aiokafka", 1) == [b"one"]


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_wrong_password_is_told_as_such(broker: SecureBroker, mechanism: str) -> None:
    errors: list[KafkaError] = []
    settings = broker.settings("SASL_PLAINTEXT", mechanism, "looking-glass")
    producer = Producer({**settings, "error_cb": errors.append})
    while not errors:
        producer.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_a_mechanism_that_is_not_offered_is_told_with_those_that_are(
    certificates: Certificates, tmp_path: Path
) -> None:
    with SecureBroker(tmp_path, certificates, **{"sasl.enabled.mechanisms": "SCRAM-SHA-256"}) as broker:
        errors: list[KafkaError] = []
        producer = Producer({**broker.settings("SASL_SSL", "PLAIN"), "error_cb": errors.append})
        while not any("SCRAM-SHA-256" in error.str() for error in errors):
            producer.poll(1)


def test_a_user_who_was_deleted_cannot_log_in(broker: SecureBroker) -> None:
    broker.set_password("bob", "pencil")
    login = {**broker.settings("SASL_SSL"), "sasl.username": "bob", "sasl.password": "pencil"}
    produce(login, "by-bob", b"one")
    admin = AdminClient({"bootstrap.servers": broker.address("PLAINTEXT")})
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(60)
    assert {info.mechanism for info in described.scram_credential_infos} == {
        ScramMechanism.SCRAM_SHA_256,
        ScramMechanism.SCRAM_SHA_512,
    }
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", mechanism)])["bob"].result(60)
    with pytest.raises(KafkaException, match=r"no user|RESOURCE_NOT_FOUND"):
        admin.describe_user_scram_credentials(["bob"])["bob"].result(60)
    errors: list[KafkaError] = []
    producer = Producer({**login, "error_cb": errors.append})
    while not errors:
        producer.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_a_client_without_the_certificate_that_is_required_is_refused(
    certificates: Certificates, tmp_path: Path
) -> None:
    with SecureBroker(tmp_path, certificates, **{"ssl.client.auth": "required"}) as broker:
        with_one = {
            **broker.settings("SSL"),
            "ssl.certificate.location": str(certificates.client),
            "ssl.key.location": str(certificates.client),
        }
        produce(with_one, "by-certificate", b"one")
        for stranger in (
            broker.settings("SSL"),
            with_one
            | dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), str(certificates.stranger)),
        ):
            with pytest.raises(KafkaException):
                AdminClient(stranger).list_topics(timeout=2)


def by_certificate(broker: SecureBroker, name: str, certificate: Path) -> dict[str, Any]:
    shown = dict.fromkeys(("ssl.certificate.location", "ssl.key.location"), str(certificate))
    return {**broker.settings(name), **shown}


def test_a_certificate_says_who_a_client_is_unless_it_logs_in(
    certificates: Certificates, tmp_path: Path
) -> None:
    guarded = {
        "ssl.client.auth": "requested",
        "ssl.principal.mapping.rules": "RULE:^CN=alice$/alice of $0/,DEFAULT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with SecureBroker(tmp_path, certificates, **guarded) as broker:
        produce(broker.settings("SSL"), "guarded", b"by nobody")
        admin = AdminClient({"bootstrap.servers": broker.address("PLAINTEXT")})
        rule = AclBinding(
            ResourceType.TOPIC,
            "guarded",
            ResourcePatternType.LITERAL,
            "User:alice of CN=alice",
            "*",
            AclOperation.WRITE,
            AclPermissionType.ALLOW,
        )
        admin.create_acls([rule])[rule].result(30)
        produce(by_certificate(broker, "SSL", certificates.client), "guarded", b"by alice's certificate")
        errors: list[KafkaError | None] = []
        producer = Producer(by_certificate(broker, "SASL_SSL", certificates.client))  # User:alice
        producer.produce("guarded", b"by a login", on_delivery=lambda error, _: errors.append(error))
        producer.flush(120)
        assert [error is not None and error.code() for error in errors] == [
            KafkaError.TOPIC_AUTHORIZATION_FAILED
        ]


def test_a_certificate_that_names_nobody_is_disconnected(certificates: Certificates, tmp_path: Path) -> None:
    rules = {"ssl.client.auth": "requested", "ssl.principal.mapping.rules": "RULE:^CN=bob$/bob/"}
    with SecureBroker(tmp_path, certificates, **rules) as broker:
        AdminClient(broker.settings("SSL")).list_topics(timeout=30)
        with pytest.raises(KafkaException):
            AdminClient(by_certificate(broker, "SSL", certificates.client)).list_topics(timeout=3)


def test_a_certificate_names_nobody_by_the_name_of_those_who_have_not_logged_in(
    certificates: Certificates, tmp_path: Path
) -> None:
    rules = {"ssl.client.auth": "requested", "ssl.principal.mapping.rules": "RULE:^CN=alice$/ANONYMOUS/"}
    with SecureBroker(tmp_path, certificates, **rules) as broker:
        AdminClient(broker.settings("SSL")).list_topics(timeout=30)
        with pytest.raises(KafkaException):
            AdminClient(by_certificate(broker, "SSL", certificates.client)).list_topics(timeout=3)
        with pytest.raises(KafkaException, match="ANONYMOUS"):
            broker.set_password("ANONYMOUS", PASSWORD)


def test_listeners_may_have_certificates_mechanisms_and_rules_of_their_own(
    certificates: Certificates, tmp_path: Path
) -> None:
    other = make(tmp_path)
    own = {
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.sasl_ssl.ssl.keystore.location": str(other.server),
        "listener.name.sasl_ssl.sasl.enabled.mechanisms": "SCRAM-SHA-512",
    }
    with SecureBroker(tmp_path / "data", certificates, **own) as broker:
        AdminClient(by_certificate(broker, "SSL", certificates.client)).list_topics(timeout=30)
        AdminClient(broker.settings("SASL_PLAINTEXT", "PLAIN")).list_topics(timeout=30)
        outside = {**broker.settings("SASL_SSL"), "ssl.ca.location": str(other.authority)}
        AdminClient(outside).list_topics(timeout=30)
        for wrong in (
            broker.settings("SSL"),  # without a certificate
            broker.settings("SASL_SSL"),  # which trusts another authority
            {**outside, "sasl.mechanism": "PLAIN"},
        ):
            with pytest.raises(KafkaException):
                AdminClient(wrong).list_topics(timeout=2)


def test_a_listener_may_have_users_of_its_own(certificates: Certificates, tmp_path: Path) -> None:
    """The setting is that of Apache Kafka's users of PLAIN. The broker itself can log in as one of them."""
    own = {
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            "org.apache.kafka.common.security.plain.PlainLoginModule required "
            'username="broker" password="of the broker" user_broker="of the broker" user_carol="tea";'
        ),
        "inter.broker.listener.name": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
    }
    with SecureBroker(tmp_path / "data", certificates, **own) as broker:

        def log_in(listener: str, user: str, password: str, mechanism: str = "PLAIN") -> None:
            settings = {**broker.settings(listener, mechanism, password), "sasl.username": user}
            AdminClient(settings).list_topics(timeout=60)

        log_in("SASL_PLAINTEXT", "carol", "tea")
        log_in("SASL_PLAINTEXT", "broker", "of the broker")
        log_in("SASL_PLAINTEXT", "alice", PASSWORD)
        log_in("SASL_SSL", "alice", PASSWORD)
        for listener, mechanism in (("SASL_SSL", "PLAIN"), ("SASL_PLAINTEXT", "SCRAM-SHA-256")):
            told: list[str] = []
            settings = {
                **broker.settings(listener, mechanism, "tea"),
                "sasl.username": "carol",
                "error_cb": lambda error, told=told: told.append(error.name()),
            }
            client = AdminClient(settings)
            deadline = time.monotonic() + 60
            while "_AUTHENTICATION" not in told:
                assert time.monotonic() < deadline, told
                client.poll(0.1)
        users = AdminClient({"bootstrap.servers": broker.address("PLAINTEXT")})
        assert list(users.describe_user_scram_credentials().result(60)) == ["alice"]


def test_users_of_a_listener_that_cannot_be_read_stop_the_start(
    certificates: Certificates, tmp_path: Path
) -> None:
    jaas = {"listener.name.sasl_ssl.plain.sasl.jaas.config": 'a.PlainLoginModule required user_a="secret"'}
    with pytest.raises(ConfigError, match=r"sasl\.jaas\.config cannot be read") as refused:
        SecureBroker(tmp_path / "data", certificates, **jaas).server.start()
    assert "secret" not in str(refused.value)


def test_a_broker_that_is_not_trusted_gets_no_requests(broker: SecureBroker) -> None:
    async def scenario() -> None:
        host, _, port = broker.address("SSL").rpartition(":")
        channel = Channel(
            SocketNetwork(),
            lambda: (host, int(port)),
            name="broker 2",
            client_id="broker-1",
            rng=Random(1),
            tls=ssl.create_default_context(),  # which trusts others
        )
        with pytest.raises(NotConnectedError, match="certificate"):
            await channel.send(MetadataRequest())
        await channel.close()

    run(scenario())


# --- the protocol itself ---


class Client:
    """A client that sends requests one after another."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def ask(self, request: Any, version: int) -> Any:
        header = RequestHeader(request.api_key, version, 7, "test")
        self.writer.write(b"".join(map(bytes, encode_request(header, request))))
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return parse_response(header, await self.reader.readexactly(size))


@asynccontextmanager
async def connect(broker: SecureBroker | str, name: str = "SASL_PLAINTEXT") -> AsyncIterator[Client]:
    address = broker if isinstance(broker, str) else broker.address(name)
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


def run(scenario: Any) -> None:
    asyncio.run(asyncio.wait_for(scenario, 60))


def plain(user: str, password: str = PASSWORD) -> SaslAuthenticateRequest:
    return SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode())


def test_nothing_is_served_before_the_login(broker: SecureBroker) -> None:
    async def scenario() -> None:
        for request, version in ((MetadataRequest(), 5), (plain("alice"), 1)):
            async with connect(broker) as client:
                with pytest.raises(asyncio.IncompleteReadError):
                    await client.ask(request, version)

    run(scenario())


def test_the_connections_of_a_deleted_user_are_closed_and_no_others(broker: SecureBroker) -> None:
    async def scenario() -> None:
        broker.set_password("carol", PASSWORD)
        async with connect(broker) as carols, connect(broker) as alices:
            for client, user in ((carols, "carol"), (alices, "alice")):
                await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
                assert (await client.ask(plain(user), 1)).error_code == 0
            admin = AdminClient({"bootstrap.servers": broker.address("PLAINTEXT")})
            for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
                deletion = UserScramCredentialDeletion("carol", mechanism)
                future = admin.alter_user_scram_credentials([deletion])["carol"]
                await asyncio.to_thread(future.result, 60)
            assert await carols.reader.read() == b""
            assert (await alices.ask(MetadataRequest(), 5)).brokers

    run(scenario())


@pytest.mark.parametrize("size", [1, 10, 33, 64, 1024])
def test_a_password_may_be_salted_to_any_length(broker: SecureBroker, size: int) -> None:
    """As in Kafka, a user whose client salts in another way logs in with the salted password."""
    salted = bytes(range(256))[:size] * (4 if size == 1024 else 1)
    user = f"salted-{size}"

    async def scenario() -> None:
        async with connect(broker, "PLAINTEXT") as admin:
            change = ScramCredentialUpsertion(
                name=user, mechanism=1, iterations=4096, salt=b"any salt", salted_password=salted
            )
            answer = await admin.ask(AlterUserScramCredentialsRequest(upsertions=[change]), 0)
            assert answer.results[0].error_code == 0
            for bad in (b"", bytes(1025)):
                change = ScramCredentialUpsertion(
                    name=user, mechanism=1, iterations=4096, salt=b"any salt", salted_password=bad
                )
                answer = await admin.ask(AlterUserScramCredentialsRequest(upsertions=[change]), 0)
                assert answer.results[0].error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
            nameless = ScramCredentialUpsertion(name="", mechanism=9)
            answer = await admin.ask(AlterUserScramCredentialsRequest(upsertions=[nameless]), 0)
            assert answer.results[0].error_code == ErrorCode.UNACCEPTABLE_CREDENTIAL
        async with connect(broker) as client:
            await client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            bare = f"n={user},r=abc"
            first = SaslAuthenticateRequest(auth_bytes=f"n,,{bare}".encode())
            challenge = (await client.ask(first, 1)).auth_bytes.decode()
            unsigned = f"c=biws,{challenge.split(',')[0]}"
            client_key = hmac.digest(salted, b"Client Key", "sha256")
            signed = ",".join((bare, challenge, unsigned)).encode()
            signature = hmac.digest(hashlib.sha256(client_key).digest(), signed, "sha256")
            proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True)))
            final = SaslAuthenticateRequest(auth_bytes=f"{unsigned},p=".encode() + proof)
            assert (await client.ask(final, 1)).error_code == 0

    run(scenario())


def told_by_scram(address: str, user: str) -> tuple[bytes, bytes]:
    """Return the salt and the iterations that a client gets before it has proven anything."""
    answers = []

    async def scenario() -> None:
        async with connect(address) as client:
            await client.ask(SaslHandshakeRequest(mechanism="SCRAM-SHA-256"), 1)
            first = SaslAuthenticateRequest(auth_bytes=f"n,,n={user},r=abc".encode())
            answers.append((await client.ask(first, 1)).auth_bytes)

    run(scenario())
    _, salt, iterations = answers[0].split(b",")
    return salt, iterations


def test_an_unknown_user_has_one_salt_that_survives_a_restart(
    certificates: Certificates, tmp_path: Path
) -> None:
    told = []
    for _ in range(2):
        with SecureBroker(tmp_path / "data", certificates) as broker:
            address = broker.address("SASL_PLAINTEXT")
            told.append(told_by_scram(address, "nobody"))
            real = told_by_scram(address, "alice")
    assert told[0] == told[1]
    assert len(told[0][0]) == len(real[0]) and told[0][1] == real[1]


def test_all_brokers_tell_an_unknown_user_the_same_salt(certificates: Certificates) -> None:
    with held_port() as first, held_port() as second:
        ports = [held.getsockname()[1] for held in (first, second)]
        with LoginCluster(ports):
            told = {told_by_scram(f"127.0.0.1:{port}", "nobody") for port in ports}
    assert len(told) == 1


class LoginCluster(BarnabasCluster):
    """Brokers in threads, each with a listener for logins on one of `ports`."""

    def __init__(self, ports: Sequence[int]) -> None:
        super().__init__(len(ports))
        self._login_ports = ports

    def _settings_of(self, broker: int) -> BrokerSettings:
        node = super()._settings_of(broker)
        login = f"SASL_PLAINTEXT://127.0.0.1:{self._login_ports[broker - 1]}"
        more = {
            "listeners": f"{node.settings['listeners']},{login}",
            "inter.broker.listener.name": "PLAINTEXT",
        }
        node.settings.update(more)
        return node


def test_before_the_login_only_small_requests_are_read(broker: SecureBroker) -> None:
    async def scenario() -> None:
        async with connect(broker) as client:
            client.writer.write((600_000).to_bytes(4, "big"))
            assert await client.reader.read() == b""

    run(scenario())


def test_a_handshake_of_version_0_is_followed_by_bare_messages(broker: SecureBroker) -> None:
    async def scenario() -> None:
        async with connect(broker) as client:
            assert (await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 0)).error_code == 0
            message = plain("alice").auth_bytes
            client.writer.write(len(message).to_bytes(4, "big") + message)
            assert await client.reader.readexactly(4) == bytes(4)
            assert (await client.ask(MetadataRequest(), 5)).brokers

    run(scenario())


def test_a_listener_without_sasl_says_so(broker: SecureBroker) -> None:
    async def scenario() -> None:
        async with connect(broker, "PLAINTEXT") as client:
            answer = await client.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
            assert (await client.ask(plain("alice"), 1)).error_code == ErrorCode.ILLEGAL_SASL_STATE

    run(scenario())


def test_a_login_ends_and_is_renewed_by_the_same_user_alone(
    certificates: Certificates, tmp_path: Path
) -> None:
    async def scenario(broker: SecureBroker) -> None:
        handshake = SaslHandshakeRequest(mechanism="PLAIN")
        async with connect(broker) as client, connect(broker) as other:
            for _ in range(2):
                await client.ask(handshake, 1)
                assert (await client.ask(plain("alice"), 1)).session_lifetime_ms == 8000
                assert (await client.ask(MetadataRequest(), 5)).brokers
            for user, code in (("alice", 0), ("bob", ErrorCode.SASL_AUTHENTICATION_FAILED)):
                await other.ask(handshake, 1)
                assert (await other.ask(plain(user), 1)).error_code == code
            await asyncio.sleep(8.2)  # what the broker promised
            with pytest.raises(asyncio.IncompleteReadError):
                await client.ask(MetadataRequest(), 5)

    with SecureBroker(tmp_path, certificates, **{"connections.max.reauth.ms": "8000"}) as broker:
        broker.set_password("bob", PASSWORD)
        run(scenario(broker))
