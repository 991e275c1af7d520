"""Logins by PLAIN and SCRAM, against the RFCs' examples and a client of another library."""

from __future__ import annotations

import base64
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient
from tests.unit.broker.logins.stored import Given

from barnabas.base.errors import ConfigError
from barnabas.broker.logins.sasl import Sasl
from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.jaas import plain_users
from barnabas.kafka.security.sasl_client import scram
from barnabas.kafka.security.scram import (
    MECHANISMS,
    InvalidCredential,
    Mechanism,
    ScramCredential,
    ScramExchange,
    derive,
)

SALT = b"a salt of some length....."
USERS = {
    user: {mechanism.text: derive(mechanism, password, SALT, 4096).encode() for mechanism in Mechanism}
    for user, password in {"alice": "wonderland", "a=b,c": "pencil", "åsa": "pässwörd"}.items()
}
NAMES = [mechanism.text for mechanism in Mechanism]


def sasl() -> Sasl:
    return Sasl(Given(USERS), Random(1), bytes(32))


def log_in(mechanism: str, user: str, password: str) -> str:
    exchange = sasl().begin(mechanism)
    if mechanism == "PLAIN":
        assert exchange.respond(f"\0{user}\0{password}".encode()) == b""
    else:
        client = ScramClient([mechanism], user, password)
        client.set_server_first(exchange.respond(client.get_client_first().encode()).decode())
        assert not exchange.is_complete
        client.set_server_final(exchange.respond(client.get_client_final().encode()).decode())
    assert exchange.is_complete
    return exchange.user


@pytest.mark.parametrize("mechanism", ["PLAIN", *NAMES])
@pytest.mark.parametrize(("user", "password"), [("alice", "wonderland"), ("a=b,c", "pencil")])
def test_the_right_password_logs_in(mechanism: str, user: str, password: str) -> None:
    assert log_in(mechanism, user, password) == user


@pytest.mark.parametrize("mechanism", NAMES)
@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wonderland"), ("a=b,c", "pencil"), ("åsa", "pässwörd")]
)
def test_our_own_client_logs_in(mechanism: str, user: str, password: str) -> None:
    exchange = sasl().begin(mechanism)
    client = scram(mechanism, user, password, b"eighteen bytes....")
    challenge = exchange.respond(next(client))
    final = exchange.respond(client.send(challenge))
    with pytest.raises(StopIteration):
        client.send(final)
    assert exchange.is_complete


@pytest.mark.parametrize(
    ("challenge", "words"),
    [
        ("r=other,s=QUJD,i=4096", "nonce"),
        ("r=NONCE,s=QUJD,i=4096", "nonce"),
        ("r=NONCEx,s=QUJD,i=999999999", "iterations"),
        ("r=NONCEx,s=?,i=4096", "malformed"),
        ("", "nonce"),
    ],
)
def test_our_own_client_refuses_a_server_that_is_none(challenge: str, words: str) -> None:
    client = scram("SCRAM-SHA-256", "alice", "wonderland", b"eighteen bytes....")
    nonce = next(client).decode().partition("r=")[2]
    with pytest.raises(SaslError, match=words):
        client.send(challenge.replace("NONCE", nonce).encode())


@pytest.mark.parametrize("verdict", [b"", b"v=AAAA", b"e=invalid-proof"])
def test_our_own_client_wants_the_servers_proof(verdict: bytes) -> None:
    client = scram("SCRAM-SHA-256", "alice", "wonderland", b"eighteen bytes....")
    client.send(sasl().begin("SCRAM-SHA-256").respond(next(client)))
    with pytest.raises(SaslError, match="server"):
        client.send(verdict)


@pytest.mark.parametrize("mechanism", ["PLAIN", *NAMES])
@pytest.mark.parametrize(("user", "password"), [("alice", "looking-glass"), ("bob", "wonderland")])
def test_a_wrong_password_and_an_unknown_user_fail_alike(mechanism: str, user: str, password: str) -> None:
    with pytest.raises(SaslError, match="the credentials are invalid"):
        log_in(mechanism, user, password)


def test_the_example_of_rfc_7677() -> None:
    credential = derive(Mechanism.SCRAM_SHA_256, "pencil", base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ=="), 4096)
    exchange = ScramExchange(
        Mechanism.SCRAM_SHA_256,
        {"user": credential}.get,
        nonce="%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        make_up=lambda user: credential,
        find_token=lambda token_id: None,
        make_up_token=lambda token_id: credential,
    )
    assert exchange.respond(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    assert exchange.respond(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    ) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
    assert exchange.is_complete and exchange.user == "user"


def test_a_user_who_does_not_exist_has_one_salt_and_iterations_like_others() -> None:
    login = sasl()
    challenges = [login.begin("SCRAM-SHA-512").respond(b"n,,n=nobody,r=abc") for _ in range(2)]
    salts = [challenge.split(b",")[1] for challenge in challenges]
    assert salts[0] == salts[1]
    assert challenges[0].split(b",")[2] == b"i=4096"
    other = login.begin("SCRAM-SHA-512").respond(b"n,,n=noone,r=abc")
    assert other.split(b",")[1] != salts[0]


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"p=tls-unique,,n=alice,r=abc",  # channel binding
        b"n,,m=ext,n=alice,r=abc",
        b"n,a=bob,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=a\xffbc",
        b"\xff\xfe",
    ],
)
def test_a_first_message_that_is_wrong_fails(message: bytes) -> None:
    with pytest.raises(SaslError):
        sasl().begin("SCRAM-SHA-256").respond(message)


def test_a_client_may_name_itself_as_the_user_to_act_for() -> None:
    assert sasl().begin("SCRAM-SHA-256").respond(b"n,a=alice,n=alice,r=abc")
    assert sasl().begin("PLAIN").respond(b"alice\0alice\0wonderland") == b""
    with pytest.raises(SaslError):
        sasl().begin("PLAIN").respond(b"bob\0alice\0wonderland")


@pytest.mark.parametrize("change", ["nonce", "binding", "proof", "short proof", "garbage"])
def test_a_final_message_that_was_changed_fails(change: str) -> None:
    exchange = sasl().begin("SCRAM-SHA-256")
    client = ScramClient(["SCRAM-SHA-256"], "alice", "wonderland")
    client.set_server_first(exchange.respond(client.get_client_first().encode()).decode())
    binding, nonce, proof = client.get_client_final().split(",", 2)
    changed = {
        "nonce": f"{binding},{nonce}x,{proof}",
        "binding": f"c=eSws,{nonce},{proof}",
        "proof": f"{binding},{nonce},p={base64.b64encode(bytes(32)).decode()}",
        "short proof": f"{binding},{nonce},p=AAAA",
        "garbage": "x",
    }[change]
    with pytest.raises(SaslError):
        exchange.respond(changed.encode())
    assert not exchange.is_complete


@given(st.binary(max_size=200), st.sampled_from(["PLAIN", *NAMES]))
def test_whatever_is_sent_fails_as_a_login(message: bytes, mechanism: str) -> None:
    exchange = sasl().begin(mechanism)
    with pytest.raises(SaslError):
        exchange.respond(message)


@given(
    st.binary(min_size=1, max_size=64), st.binary(max_size=64), st.binary(max_size=64), st.integers(1, 2**31)
)
def test_a_credential_is_read_as_it_was_stored(
    salt: bytes, stored: bytes, server: bytes, iterations: int
) -> None:
    credential = ScramCredential(salt, stored, server, iterations)
    assert ScramCredential.decode(credential.encode()) == credential
    assert base64.b64encode(salt).decode() not in repr(credential)


@pytest.mark.parametrize("text", ["", "salt=x", "salt=AA==,stored_key=AA==,server_key=AA==,iterations=many"])
def test_a_stored_credential_that_is_damaged_refuses_the_login(text: str) -> None:
    with pytest.raises(InvalidCredential):
        ScramCredential.decode(text)
    damaged = Sasl(Given({"alice": {"SCRAM-SHA-256": text}}), Random(1), bytes(32))
    with pytest.raises(SaslError):
        damaged.begin("SCRAM-SHA-256").respond(b"n,,n=alice,r=abc")


def test_names_of_mechanisms() -> None:
    assert list(MECHANISMS) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]


def test_a_listener_has_users_of_its_own_for_plain():
    """As in Apache Kafka's JAAS entries. Such a password is valid for its user instead of the cluster's."""
    passwords = {"OWN": {"alice": "of the listener", "bob": "builder"}}
    both = Sasl(Given(USERS, passwords), Random(1), bytes(32))
    assert both.begin("PLAIN", "OWN").respond(b"\0bob\0builder") == b""
    assert both.begin("PLAIN", "OWN").respond(b"\0alice\0of the listener") == b""
    assert both.begin("PLAIN", "OTHER").respond(b"\0alice\0wonderland") == b""
    for listener, message in (
        ("OWN", b"\0alice\0wonderland"),
        ("OWN", b"\0bob\0of the listener"),
        ("OWN", b"\0carol\0builder"),
        ("OTHER", b"\0bob\0builder"),
        ("OTHER", b"\0alice\0of the listener"),
    ):
        with pytest.raises(SaslError, match="the credentials are invalid"):
            both.begin("PLAIN", listener).respond(message)


def test_users_in_jaas_are_read_and_never_repeated():
    jaas = 'org.apache.PlainLoginModule required username="b" password="p" user_alice="a b" user_x-y.z="2";'
    assert plain_users(jaas) == {"alice": "a b", "x-y.z": "2"}
    assert plain_users('a.ScramLoginModule required user_alice="a";') == {}
    with pytest.raises(ConfigError, match="has no password"):
        plain_users('a.PlainLoginModule required user_alice="" user_bob="secret";')
    with pytest.raises(ConfigError) as refused:
        plain_users('a.PlainLoginModule required user_alice="secret"')
    assert "secret" not in str(refused.value)
