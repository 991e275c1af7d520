"""Before a login, no answer of a broker shows whether a user exists."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections import Counter
from collections.abc import Mapping
from random import Random
from typing import Any

import pytest
from tests.unit.broker.logins.stored import Given

from barnabas.broker.logins.sasl import Sasl
from barnabas.broker.logins.unknown_users import UnknownUsers
from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.scram import MAX_ITERATIONS, MIN_ITERATIONS, Mechanism, ScramCredential, derive

SECRET = b"a secret that all brokers have.."
Users = dict[str, Mapping[str, str]]


def user(
    *mechanisms: Mechanism,
    salt_bytes: int = 24,
    iterations: int = 4096,
    shared: bool = False,
    java: bool = False,
) -> dict[str, str]:
    """Return a stored user. The keys do not matter."""
    texts = {}
    salt = b""
    for mechanism in mechanisms:
        if not (salt and shared):
            salt = java_salt(salt_bytes) if java else secrets.token_bytes(salt_bytes)
        keys = bytes(mechanism.size)
        texts[mechanism.text] = ScramCredential(salt, keys, keys, iterations).encode()
    return texts


def java_salt(size: int) -> bytes:
    """Return a salt as kafka-configs.sh makes it: a number of 130 bits in base 36."""
    digits = "0123456789abcdefghijklmnopqrstuvwxyz"
    while True:
        value, text = secrets.randbits(130), ""
        while value:
            value, digit = divmod(value, 36)
            text = digits[digit] + text
        if len(text) == size:
            return text.encode()


BOTH = (Mechanism.SCRAM_SHA_256, Mechanism.SCRAM_SHA_512)


def sasl(
    users: Users,
    secret: bytes = SECRET,
    seed: int = 1,
    listeners: Mapping[str, Mapping[str, str]] | None = None,
    **more: Any,
) -> Sasl:
    return Sasl(Given(users, listeners or {}), Random(seed), secret, **more)


def challenge(users: Users, name: str, mechanism: Mechanism, **more: Any) -> tuple[bytes, int]:
    """Return the salt and the iterations that a client gets."""
    answer = sasl(users, **more).begin(mechanism.text).respond(f"n,,n={name},r=abc".encode()).decode()
    fields = dict(part.split("=", 1) for part in answer.split(","))
    return base64.b64decode(fields["s"]), int(fields["i"])


@pytest.mark.parametrize("mechanism", BOTH)
def test_a_salt_is_the_same_at_every_broker_and_after_a_restart(mechanism: Mechanism) -> None:
    users: Users = {f"user{number}": user(*BOTH, salt_bytes=8 + number) for number in range(20)}
    # another process iterates the users in another order
    other = dict(reversed(users.items()))
    for name in ("nobody", "noone", "x" * 200):
        found = challenge(users, name, mechanism, seed=1)
        assert challenge(users, name, mechanism, seed=2) == found
        assert challenge(other, name, mechanism, seed=3) == found
        assert challenge(users, name, mechanism, secret=b"of another cluster") != found
    assert challenge(users, "nobody", mechanism)[0] != challenge(users, "noone", mechanism)[0]


@pytest.mark.parametrize(
    "shape",
    [
        {"salt_bytes": 16, "iterations": 8192},
        {"salt_bytes": 64, "iterations": 4096},
        {"salt_bytes": 10, "iterations": 16384},
        {"salt_bytes": 25, "java": True},
        {"salt_bytes": 26, "java": True},
    ],
)
@pytest.mark.parametrize("mechanism", BOTH)
def test_salt_and_iterations_are_shaped_as_those_of_the_users(
    mechanism: Mechanism, shape: dict[str, Any]
) -> None:
    users: Users = {f"user{number}": user(*BOTH, **shape) for number in range(5)}
    seen = set()
    for number in range(200):
        salt, iterations = challenge(users, f"nobody{number}", mechanism)
        assert len(salt) == shape["salt_bytes"]
        assert iterations == shape.get("iterations", 4096)
        if "java" in shape:
            assert set(salt) <= set(b"0123456789abcdefghijklmnopqrstuvwxyz")
            assert int(salt, 36) < 2**130 and salt[:1] != b"0"
        seen.add(salt)
    assert len(seen) == 200
    if "java" not in shape:
        assert len(set(b"".join(seen))) > 200  # any bytes


def test_shapes_are_as_frequent_as_among_the_users() -> None:
    users: Users = {f"a{n}": user(*BOTH, iterations=4096) for n in range(30)}
    users |= {f"b{n}": user(*BOTH, iterations=8192) for n in range(10)}
    unknown = UnknownUsers(SECRET, Given(users))
    drawn = Counter(unknown.credential(BOTH[0], f"nobody{n}").iterations for n in range(2000))
    assert set(drawn) == {4096, 8192}
    assert 350 < drawn[8192] < 650  # a quarter of 2,000


def test_a_shape_stays_when_other_users_come_and_go() -> None:
    """A real user's challenge changes only with the password."""
    users: Users = {f"a{n}": user(*BOTH, iterations=4096) for n in range(50)}
    users |= {f"b{n}": user(*BOTH, iterations=8192) for n in range(50)}
    names = [f"nobody{n}" for n in range(500)]
    before = UnknownUsers(SECRET, Given(dict(users)))
    found = [before.credential(BOTH[0], name) for name in names]
    users["one more"] = user(*BOTH, iterations=8192)
    after = UnknownUsers(SECRET, Given(dict(users)))
    changed = [name for name, was in zip(names, found, strict=True) if after.credential(BOTH[0], name) != was]
    assert len(changed) <= 10


def test_the_users_are_counted_anew_when_they_have_changed() -> None:
    stored = Given({"a": user(*BOTH, iterations=4096)})
    unknown = UnknownUsers(SECRET, stored)
    assert unknown.credential(BOTH[0], "nobody").iterations == 4096
    stored.users = {"a": user(*BOTH, iterations=8192)}
    assert unknown.credential(BOTH[0], "nobody").iterations == 8192


@pytest.mark.parametrize("shared", [False, True])
def test_two_mechanisms_have_one_salt_only_if_users_have(shared: bool) -> None:
    users: Users = {"a": user(*BOTH, shared=shared)}
    salts = [challenge(users, "nobody", mechanism)[0] for mechanism in BOTH]
    assert (salts[0] == salts[1]) is shared


def test_a_user_without_a_mechanism_looks_like_one_who_is_unknown_to_it() -> None:
    users: Users = {"a": user(BOTH[0], iterations=8192), "b": user(*BOTH, salt_bytes=12)}
    for name in ("a", "nobody"):
        salt, iterations = challenge(users, name, BOTH[1])
        assert (len(salt), iterations) == (12, 4096)


@pytest.mark.parametrize(
    "users", [{}, {"a": {"producer_byte_rate": "5"}}, {"a": {"SCRAM-SHA-256": "damaged"}}]
)
def test_without_users_the_shape_is_that_of_our_own_tools(users: Users) -> None:
    for mechanism in BOTH:
        salt, iterations = challenge(users, "nobody", mechanism)
        assert (len(salt), iterations) == (24, 4096)


class Work:
    """Counts the derivations of keys."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[tuple[str, int]] = []
        derive_key = hashlib.pbkdf2_hmac

        def counted(name: str, password: bytes, salt: bytes, iterations: int) -> bytes:
            self.done.append((name, iterations))
            return derive_key(name, password, salt, iterations)

        monkeypatch.setattr(hashlib, "pbkdf2_hmac", counted)

    def of_plain(self, login: Sasl, name: str, password: str) -> list[tuple[str, int]]:
        self.done.clear()
        exchange = login.begin("PLAIN", "OWN")
        try:
            exchange.respond(f"\0{name}\0{password}".encode())
        except SaslError as error:
            assert str(error) == "the credentials are invalid"
            assert not exchange.is_complete
        else:
            assert exchange.is_complete
        return list(self.done)


@pytest.mark.parametrize("mechanisms", [BOTH, BOTH[:1], BOTH[1:]])
@pytest.mark.parametrize("iterations", [MIN_ITERATIONS, MAX_ITERATIONS])
def test_plain_takes_the_same_work_for_every_name(
    monkeypatch: pytest.MonkeyPatch, mechanisms: tuple[Mechanism, ...], iterations: int
) -> None:
    """The work is the same for users of the cluster, of the listener, and unknown ones, at each login."""
    work = Work(monkeypatch)
    users: Users = {
        f"user{number}": {
            mechanism.text: derive(mechanism, "right", bytes(24), iterations).encode()
            for mechanism in mechanisms
        }
        for number in range(3)
    }
    own = {"listener1": "right", "listener2": "right" * 20}
    login = sasl(users, listeners={"OWN": own})
    expected = [(mechanisms[0].hash, iterations)]
    for name in ("user0", "user1", "listener1", "listener2", "nobody", "noone"):
        for password in ("wrong", "right", "wrong"):
            assert work.of_plain(login, name, password) == expected, name


def test_a_token_that_is_not_there_looks_like_one_that_is() -> None:
    """Each broker derives a token's credential again, whatever forms the users' credentials have."""
    from barnabas.broker.logins.token_logins import TokenLogin

    class Tokens:
        def find(self, token_id: str) -> TokenLogin | None:
            return TokenLogin("password", "alice", 1) if token_id == "there" else None

    users: Users = {"a": user(*BOTH, salt_bytes=60, iterations=8192)}
    for mechanism in BOTH:
        shapes = set()
        for name in ("there", "not there"):
            login = sasl(users, delegation_tokens=Tokens())
            told = login.begin(mechanism.text).respond(f"n,,n={name},r=abc,tokenauth=true".encode()).decode()
            fields = dict(part.split("=", 1) for part in told.split(","))
            shapes.add((len(base64.b64decode(fields["s"])), fields["i"]))
        assert shapes == {(24, "4096")}
