"""Logins by tokens of an identity provider, with the usual clients, repeatedly."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AiokafkaTokens
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaError, Producer
from kafka import KafkaConsumer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens
from tests.identity_provider import IdentityProvider

from barnabas.base.errors import ConfigError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.cli.app import app


@pytest.fixture(scope="module")
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as provider:
        yield provider


@pytest.fixture(scope="module")
def start(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., BrokerServer]]:
    running: list[BrokerServer] = []

    def run(provider: IdentityProvider, **settings: str) -> BrokerServer:
        text = {
            "log.dirs": str(tmp_path_factory.mktemp("data")),
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "offsets.topic.num.partitions": "1",
            **provider.settings(),
            **settings,
        }
        server = BrokerServer(BrokerConfig.from_text(text))
        server.start()
        running.append(server)
        return server

    yield run
    for server in running:
        server.stop()


@pytest.fixture(scope="module")
def broker(start: Callable[..., BrokerServer], provider: IdentityProvider) -> str:
    return address(start(provider))


def address(server: BrokerServer) -> str:
    return next(endpoint.address for endpoint in server.bound if endpoint.has_sasl)


def by_callback(servers: str, provider: IdentityProvider, user: str = "alice") -> dict[str, Any]:
    """Return settings of librdkafka, with tokens from a callback."""

    def token(_: str) -> tuple[str, float]:
        return provider.token(user), time.time() + provider.lifetime_s

    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
        "log_level": 0,
    }


def by_oidc(servers: str, provider: IdentityProvider, user: str = "alice") -> dict[str, Any]:
    """Return settings with which librdkafka gets the tokens itself."""
    return {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": user,
        "sasl.oauthbearer.client.secret": "secret",
        "sasl.oauthbearer.token.endpoint.url": f"{provider.url}/token",
        "log_level": 0,
    }


def produce(settings: dict[str, Any], topic: str, value: bytes) -> None:
    errors: list[KafkaError | None] = []
    producer = Producer({**settings, "message.timeout.ms": 60_000})
    producer.poll(0)
    producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(60) == 0
    assert errors == [None]


@pytest.mark.parametrize("how", [by_callback, by_oidc])
def test_librdkafka_logs_in_by_a_token(broker: str, provider: IdentityProvider, how: Any) -> None:
    produce(how(broker, provider), f"of-{how.__name__}", b"one")


def test_kafka_python_logs_in_by_a_token(broker: str, provider: IdentityProvider) -> None:
    class Tokens(KafkaPythonTokens):
        def token(self) -> str:
            return provider.token("alice")

    produce(by_callback(broker, provider), "for-kafka-python", b"one")
    consumer = KafkaConsumer(
        "for-kafka-python",
        bootstrap_servers=broker,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Tokens(),
        auto_offset_reset="earliest",
        consumer_timeout_ms=60_000,
    )
    assert next(iter(consumer)).value == b"one"
    consumer.close()


def test_aiokafka_logs_in_by_a_token(broker: str, provider: IdentityProvider) -> None:
    class Tokens(AiokafkaTokens):
        async def token(self) -> str:
            return provider.token("alice")

    async def scenario() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Tokens(),
        )
        await producer.start()
        try:
            await producer.send_and_wait("by-aiokafka", b"one")
        finally:
            await producer.stop()

    asyncio.run(asyncio.wait_for(scenario(), 60))


def test_our_own_commands_log_in_by_a_token(broker: str, provider: IdentityProvider, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    settings = {name: value for name, value in by_oidc(broker, provider).items() if name != "log_level"}
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    done = CliRunner().invoke(app, ["topics", "list", "--config", str(file)])
    assert done.exit_code == 0, done.output


@pytest.mark.parametrize(
    "claims", [{"aud": "others"}, {"iss": "https://other.test/"}, {"exp": 1}, {"sub": None}], ids=str
)
def test_a_token_that_is_not_for_this_broker_does_not_log_in(
    broker: str, provider: IdentityProvider, claims: dict[str, Any]
) -> None:
    errors: list[KafkaError] = []

    def token(_: str) -> tuple[str, float]:
        return provider.token("alice", **claims), time.time() + 300

    settings = {**by_callback(broker, provider), "oauth_cb": token, "error_cb": errors.append}
    producer = Producer(settings)
    while not errors:
        producer.poll(1)
    assert errors[0].code() == KafkaError._AUTHENTICATION


def test_a_new_key_of_the_provider_is_learned_when_a_token_names_it(
    start: Callable[..., BrokerServer], tmp_path: Path
) -> None:
    with IdentityProvider() as provider:
        servers = address(start(provider))
        produce(by_callback(servers, provider), "before", b"one")
        provider.rotate()
        produce(by_callback(servers, provider), "after", b"one")  # the client tries again for a minute


def test_keys_may_lie_in_a_file(start: Callable[..., BrokerServer], tmp_path: Path) -> None:
    with IdentityProvider() as provider:
        file = tmp_path / "keys.json"
        file.write_bytes(provider.jwks)
        server = start(provider, **{"sasl.oauthbearer.jwks.endpoint.url": file.as_uri()})
        produce(by_callback(address(server), provider), "by-file", b"one")


def test_listeners_may_have_providers_of_their_own(start: Callable[..., BrokerServer]) -> None:
    with IdentityProvider() as staff, IdentityProvider() as machines:
        server = start(
            staff,
            **{
                "listeners": "PLAINTEXT://127.0.0.1:0,STAFF://127.0.0.1:0,MACHINES://127.0.0.1:0",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,STAFF:SASL_PLAINTEXT,"
                "MACHINES:SASL_PLAINTEXT",
                "listener.name.machines.sasl.oauthbearer.jwks.endpoint.url": f"{machines.url}/keys",
                "listener.name.machines.oauthbearer.sasl.oauthbearer.expected.audience": "robots",
            },
        )
        _, of_staff, of_machines = (endpoint.address for endpoint in server.bound)
        produce(by_callback(of_staff, staff), "of-staff", b"one")

        def tokens_of(make: Callable[[], str]) -> dict[str, Any]:
            return {**by_callback(of_machines, machines), "oauth_cb": lambda _: (make(), time.time() + 300)}

        produce(tokens_of(lambda: machines.token("robot", aud="robots")), "of-machines", b"one")
        for made in (lambda: staff.token("alice", aud="robots"), lambda: machines.token("robot")):
            errors: list[KafkaError] = []
            producer = Producer({**tokens_of(made), "error_cb": errors.append})
            while not errors:
                producer.poll(1)
            assert errors[0].code() == KafkaError._AUTHENTICATION


def test_acls_name_the_user_of_the_token(
    start: Callable[..., BrokerServer], provider: IdentityProvider
) -> None:
    server = start(
        provider,
        **{
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:root",
        },
    )
    produce(by_oidc(address(server), provider, "root"), "guarded", b"one")
    errors: list[KafkaError | None] = []
    producer = Producer(by_callback(address(server), provider, "alice"))
    producer.produce("guarded", b"two", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert [error is not None and error.code() for error in errors] == [KafkaError.TOPIC_AUTHORIZATION_FAILED]


def test_clients_log_in_again_before_their_tokens_end_and_lose_nothing(
    start: Callable[..., BrokerServer],
) -> None:
    """Records flow until the provider has given five tokens, so at least one client has used three."""
    with IdentityProvider(lifetime_s=3) as provider:
        servers = address(start(provider, **{"sasl.oauthbearer.clock.skew.seconds": "0"}))
        errors: list[KafkaError | None] = []
        reliable = {"enable.idempotence": True, "message.timeout.ms": 120_000}
        producer = Producer({**by_callback(servers, provider), **reliable})
        consumer = Consumer(
            {**by_callback(servers, provider), "group.id": "again", "auto.offset.reset": "earliest"}
        )
        found: list[int] = []
        ended = threading.Event()

        def read() -> None:
            while not ended.is_set() or len(found) < len(errors):
                message = consumer.poll(1)
                if message is not None and message.error() is None:
                    found.append(int(message.value() or b""))

        producer.poll(0)
        producer.produce("again", b"0", on_delivery=lambda error, _: errors.append(error))
        assert producer.flush(60) == 0
        consumer.subscribe(["again"])
        reader = threading.Thread(target=read, daemon=True)
        reader.start()
        number = 1
        while provider.tokens < 5:
            producer.produce("again", b"%d" % number, on_delivery=lambda error, _: errors.append(error))
            producer.poll(0.01)
            number += 1
        assert producer.flush(120) == 0
        ended.set()
        reader.join(120)
        assert not reader.is_alive()
        consumer.close()
        assert errors == [None] * number
        assert found == list(range(number))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"sasl.oauthbearer.jwks.endpoint.url": None}, "jwks.endpoint.url is not set"),
        ({"sasl.oauthbearer.expected.issuer": None}, "needs sasl.oauthbearer.expected.issuer"),
        ({"sasl.oauthbearer.expected.audience": None}, "needs sasl.oauthbearer.expected.audience"),
        (
            {"sasl.oauthbearer.jwks.endpoint.url": "http://provider.test/keys"},
            "http is allowed for this machine only",
        ),
        ({"sasl.oauthbearer.jwks.endpoint.url": "ftp://provider.test/keys"}, "write https://"),
        ({"sasl.oauthbearer.jwks.endpoint.url": "file:///nowhere/at/all"}, "cannot be read"),
        (
            {"barnabas.oauthbearer.unsigned": "true", "listeners": "SASL_PLAINTEXT://0.0.0.0:0"},
            "every client that can reach it could log in",
        ),
    ],
)
def test_a_broker_that_could_not_check_tokens_does_not_start(
    start: Callable[..., BrokerServer],
    provider: IdentityProvider,
    settings: dict[str, str | None],
    words: str,
    tmp_path: Path,
) -> None:
    text = {
        "log.dirs": str(tmp_path),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        **provider.settings(),
        **settings,
    }
    config = BrokerConfig.from_text({name: value for name, value in text.items() if value is not None})
    with pytest.raises(ConfigError, match=words):
        BrokerServer(config).start()


def test_unsigned_tokens_log_in_where_they_are_allowed(
    start: Callable[..., BrokerServer], tmp_path: Path
) -> None:
    text = {
        "log.dirs": str(tmp_path),
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "barnabas.oauthbearer.unsigned": "true",
    }
    server = BrokerServer(BrokerConfig.from_text(text))
    server.start()
    try:
        unsecured = {
            "bootstrap.servers": address(server),
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": "true",
            "sasl.oauthbearer.config": "principal=alice",
        }
        produce(unsecured, "unsigned", b"one")
    finally:
        server.stop()
