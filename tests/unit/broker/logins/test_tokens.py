"""The tokens that a broker accepts and rejects: each case with real signatures."""

from __future__ import annotations

import base64
import hmac
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from joserfc import jwt
from joserfc.jwk import ECKey, RSAKey
from joserfc.jws import JWSRegistry

from barnabas.base.errors import ConfigError
from barnabas.broker.logins.oauthbearer import OauthbearerExchange
from barnabas.broker.logins.tokens import SignedTokens, Token, TokenRules, UnsignedTokens, parse_keys
from barnabas.kafka.security.errors import SaslError

NOW = 1_800_000_000
RULES = TokenRules("https://provider.test/", ("barnabas", "others"))
CLAIMS = {"iss": RULES.issuer, "aud": "barnabas", "sub": "alice", "exp": NOW + 60, "scope": "read write"}
RSA = RSAKey.generate_key(2048, {"kid": "rsa"})
EC = ECKey.generate_key("P-256", {"kid": "ec"})
SAME_NAME = RSAKey.generate_key(2048, {"kid": "rsa"})


def jwks(*keys, **more) -> bytes:
    return json.dumps({"keys": [{**key.as_dict(private=False), **more} for key in keys]}).encode()


KEYS = parse_keys(jwks(RSA, EC))


def read(token, rules=RULES, keys=KEYS, asked=None):
    def note():
        if asked is not None:
            asked.append(True)

    return SignedTokens(rules, lambda: keys, note, lambda: NOW * 1000).read(token)


def signed(key=RSA, header=None, **claims):
    said = {name: value for name, value in {**CLAIMS, **claims}.items() if value is not None}
    algorithm = {"RSA": "RS256", "EC": "ES256"}[key.key_type]
    return jwt.encode({"alg": algorithm, "kid": key.kid, **(header or {})}, said, key)


def unsigned(header, claims=CLAIMS, signature=b""):
    parts = (json.dumps(header).encode(), json.dumps(claims).encode(), signature)
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts)


@pytest.mark.parametrize("key", [RSA, EC])
def test_a_token_that_a_key_of_the_provider_has_signed_says_who_it_is(key):
    assert read(signed(key)) == Token("alice", (NOW + 60) * 1000, ("read write",))


@pytest.mark.parametrize(
    ("claims", "words"),
    [
        ({"exp": None}, "no exp"),
        ({"exp": NOW - 30}, "expired"),
        ({"exp": "tomorrow"}, "exp is not a time"),
        ({"exp": True}, "exp is not a time"),
        ({"exp": 1e300}, "exp is not a time"),
        ({"nbf": NOW + 31}, "valid from"),
        ({"nbf": [1]}, "nbf is not a time"),
        ({"iat": "now"}, "iat is not a time"),
        ({"iss": None}, "issuer is not"),
        ({"iss": "https://provider.test"}, "issuer is not"),
        ({"iss": ["https://provider.test/"]}, "issuer is not"),
        ({"aud": None}, "audience does not contain"),
        ({"aud": "Barnabas"}, "audience does not contain"),
        ({"aud": ["a", "b"]}, "audience does not contain"),
        ({"aud": {"barnabas": 1}}, "neither a string"),
        ({"sub": None}, "names no user"),
        ({"sub": " "}, "names no user"),
        ({"sub": 7}, "names no user"),
        ({"sub": "a" * 2000}, "names no user"),
        ({"scope": 7}, "neither a string"),
    ],
)
def test_a_claim_that_is_wrong_is_refused(claims, words):
    with pytest.raises(SaslError, match=words):
        read(signed(**claims))


def test_clocks_may_differ_a_little():
    assert read(signed(exp=NOW - 29, nbf=NOW + 29)).user == "alice"


def test_what_is_not_expected_is_not_checked_and_names_may_be_in_other_claims():
    rules = TokenRules(None, (), user_claim="azp", scope_claim="scp")
    assert read(signed(iss=None, aud=None, sub=None, azp="job", scp=["a", "b"]), rules) == Token(
        "job", (NOW + 60) * 1000, ("a", "b")
    )


def test_one_of_several_audiences_is_enough():
    assert read(signed(aud=["x", "others"])).user == "alice"


def test_no_other_key_counts():
    for key in (SAME_NAME, ECKey.generate_key("P-256", {"kid": "ec"})):
        with pytest.raises(SaslError, match="signature is invalid"):
            read(signed(key))


def test_a_token_that_was_changed_is_refused():
    header, payload, signature = signed().split(".")
    other = unsigned({}, {**CLAIMS, "sub": "admin"}).split(".")[1]
    with pytest.raises(SaslError, match="signature is invalid"):
        read(f"{header}.{other}.{signature}")
    with pytest.raises(SaslError, match="signature is invalid"):
        read(f"{header}.{payload}.")


@pytest.mark.parametrize("algorithm", ["none", "None", "HS256", "dir", "", None, ["RS256"], "EdDSA"])
def test_no_other_algorithm_is_taken(algorithm):
    with pytest.raises(SaslError, match="alg is not allowed"):
        read(unsigned({"alg": algorithm, "kid": "rsa"}))


def test_a_public_key_is_no_shared_secret():
    signed_part = unsigned({"alg": "HS256", "kid": "rsa"}).rpartition(".")[0]
    signature = hmac.digest(RSA.as_pem(private=False), signed_part.encode(), "sha256")
    forged = f"{signed_part}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"
    with pytest.raises(SaslError, match="alg is not allowed"):
        read(forged)


def test_a_key_that_the_token_brings_along_is_ignored():
    for header in (
        {"jwk": SAME_NAME.as_dict(private=False)},
        {"jku": "https://evil.test/keys"},
        {"x5u": "https://evil.test/keys"},
    ):
        with pytest.raises(SaslError, match="signature is invalid"):
            read(signed(SAME_NAME, header))


def test_a_header_of_the_providers_own_does_no_harm():
    lenient = JWSRegistry(strict_check_header=False)
    token = jwt.encode({"alg": "RS256", "kid": "rsa", "pi.atm": "1"}, CLAIMS, RSA, registry=lenient)
    assert read(token).user == "alice"


def test_an_unknown_key_has_the_provider_asked_again_and_a_wrong_signature_does_not():
    asked = []
    with pytest.raises(SaslError, match="no key of the identity provider"):
        read(signed(header={"kid": "new"}), asked=asked)
    assert len(asked) == 1
    with pytest.raises(SaslError, match="signature"):
        read(signed(SAME_NAME), asked=asked)
    assert len(asked) == 1


def test_a_token_without_a_key_id_may_be_of_any_key():
    token = jwt.encode({"alg": "RS256"}, CLAIMS, RSA)
    assert read(token, keys=parse_keys(jwks(SAME_NAME, EC, RSA))).user == "alice"


def test_a_key_for_another_algorithm_or_for_encryption_is_not_used():
    for more in ({"alg": "RS512"}, {"use": "enc"}):
        keys = parse_keys(
            json.dumps({"keys": [RSA.as_dict(private=False) | more, EC.as_dict(private=False)]}).encode()
        )
        with pytest.raises(SaslError, match="no key of the identity provider"):
            read(signed(RSA), keys=keys)


@pytest.mark.parametrize(
    "document",
    [
        b"",
        b"{",
        b"[]",
        b'{"keys": {}}',
        b'{"keys": []}',
        b'{"keys": [{"kty": "oct", "k": "eA"}, 7, {"kty": "RSA"}]}',
    ],
)
def test_what_has_no_key_is_refused(document):
    with pytest.raises(ConfigError):
        parse_keys(document)


def test_unsigned_tokens_are_taken_only_by_who_was_told_to():
    trusting = UnsignedTokens(RULES, lambda: NOW * 1000)
    assert trusting.read(unsigned({"alg": "none"})).user == "alice"
    for token in (signed(), unsigned({"alg": "none"}, signature=b"x"), unsigned({})):
        with pytest.raises(SaslError, match="is signed"):
            trusting.read(token)
    with pytest.raises(SaslError, match="expired"):
        trusting.read(unsigned({"alg": "none"}, {**CLAIMS, "exp": NOW - 31}))


@given(
    st.text(max_size=200)
    | st.builds(".".join, st.lists(st.text("eyJhbGciOi0=-_Zz", max_size=40), max_size=4))
)
def test_garbage_is_refused(text):
    with pytest.raises(SaslError):
        read(text)


def test_nesting_is_refused():
    deep = base64.urlsafe_b64encode(b'{"a":' + b"[" * 40_000).decode()
    with pytest.raises(SaslError, match="no JWT"):
        read(f"{deep}.e30.x")


# --- the exchange ---


def exchange():
    return OauthbearerExchange(UnsignedTokens(RULES, lambda: NOW * 1000))


def first(token, gs2="n,,", more=""):
    return f"{gs2}\x01auth=Bearer {token}\x01{more}\x01".encode()


GOOD = unsigned({"alg": "none"})


@pytest.mark.parametrize(
    "message", [first(GOOD), first(GOOD, "n,a=alice,"), first(GOOD, more="traceId=7\x01"), first(GOOD, "y,,")]
)
def test_a_token_logs_in(message):
    login = exchange()
    assert login.respond(message) == b""
    assert login.is_complete and login.user == "alice" and login.expires_ms == (NOW + 60) * 1000


def test_a_refused_token_is_told_as_the_rfc_says_and_the_login_fails_with_the_next_message():
    login = exchange()
    assert login.respond(first("nonsense")) == b'{"status":"invalid_token"}'
    assert not login.is_complete
    with pytest.raises(SaslError, match="no JWT"):
        login.respond(first(GOOD))
    assert not login.is_complete


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic x\x01\x01",
        b"p=tls,,\x01auth=Bearer x\x01\x01",
        b"n,,\x01auth=Bearer x\x01auth=Bearer y\x01\x01",
        b"n,,\x01auth=Bearer x\x01a-b=1\x01\x01",
        b"n,,\x01auth=Bearer \xff\x01\x01",
        first(GOOD, "n,a=bob,"),
    ],
)
def test_a_message_that_is_malformed_or_for_another_user_fails(message):
    login = exchange()
    with pytest.raises(SaslError):
        login.respond(message)
    assert not login.is_complete
