"""Subjects of certificates in Java's form, and the rules that convert them to user names."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID as Oid
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.broker.logins.subjects import SubjectRules, subject_of

KEY = ec.generate_private_key(ec.SECP256R1())
NOW = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def certificate(*rdns) -> bytes:
    """Return a certificate whose subject has these parts, each a list of pairs of a number and a value."""
    parts = [x509.RelativeDistinguishedName(x509.NameAttribute(*pair) for pair in rdn) for rdn in rdns]
    name = x509.Name(parts)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(KEY.public_key())
    builder = builder.serial_number(1).not_valid_before(NOW).not_valid_after(NOW + datetime.timedelta(1))
    return builder.sign(KEY, hashes.SHA256()).public_bytes(Encoding.DER)


# each as `X500Principal.getName()` of Java 17 wrote it
@pytest.mark.parametrize(
    ("rdns", "text"),
    [
        (
            [
                [(Oid.COUNTRY_NAME, "DE")],
                [(Oid.ORGANIZATION_NAME, 'A, "B" & Co=;<>#+\\')],
                [(Oid.COMMON_NAME, "alice")],
            ],
            r"CN=alice,O=A\, \"B\" & Co\=\;\<\>\#\+\\,C=DE",
        ),
        (
            [
                [(Oid.COMMON_NAME, " # x  y ")],
                [(Oid.EMAIL_ADDRESS, "a@x.io")],
                [(Oid.DOMAIN_COMPONENT, "com")],
                [(Oid.USER_ID, "u1")],
                [(Oid.STREET_ADDRESS, "s")],
            ],
            r"STREET=s,UID=u1,DC=com,1.2.840.113549.1.9.1=#16066140782e696f,CN=\ \# x  y\ ",
        ),
        (
            [
                [(Oid.COMMON_NAME, "älice ☃"), (Oid.ORGANIZATIONAL_UNIT_NAME, "ou")],
                [(Oid.LOCALITY_NAME, "l")],
                [(Oid.STATE_OR_PROVINCE_NAME, "st")],
                [(Oid.SERIAL_NUMBER, "77")],
                [(Oid.TITLE, "Dr")],
            ],
            "2.5.4.12=#0c024472,2.5.4.5=#13023737,ST=st,L=l,OU=ou+CN=älice ☃",
        ),
        ([[(Oid.COMMON_NAME, "  ")]], r"CN=\ \ "),
        ([[(Oid.COMMON_NAME, "a/b:c@d_*!")]], "CN=a/b:c@d_*!"),
        ([[(Oid.COMMON_NAME, "tab\there")]], "CN=tab\there"),
    ],
)
def test_a_subject_is_written_as_java_does(rdns, text):
    assert subject_of(certificate(*rdns)) == text


def test_a_long_value_that_has_no_word_is_written_whole():
    email = "a" * 200 + "@x.io"
    assert subject_of(certificate([(Oid.EMAIL_ADDRESS, email)])) == (
        "1.2.840.113549.1.9.1=#1681cd" + email.encode().hex()
    )


def test_what_is_no_certificate_is_refused():
    with pytest.raises(ValueError, match=r"."):
        subject_of(b"nonsense")


# KIP-371 has the first three
@pytest.mark.parametrize(
    ("rules", "subject", "user"),
    [
        ("RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/", "CN=serviceuser,OU=ServiceUsers,O=Unknown", "serviceuser"),
        (
            "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
            "CN=AdminUser,OU=Admin,O=Unknown,L=Unknown,ST=Unknown,C=Unknown",
            "adminuser@admin",
        ),
        ("RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U", "O=x,cn=app.one", "APP.ONE"),
        ("DEFAULT", "CN=a,O=b", "CN=a,O=b"),
        ("RULE:^CN=(x)$/$1/ , DEFAULT", "CN=a", "CN=a"),
        ("RULE:^CN=(x)$/$1/", "CN=a", None),
        ("RULE:CN=a/whole/", "CN=a,O=b", None),
        (r"RULE:^CN=(.*)\/(.*)$/$2\/\$$1/", "CN=a/b", "b/$a"),
        ("RULE:^(.*)$/$9/", "CN=a", "$9"),
        ("RULE:^CN=(a)?(b)$/$1$2/", "CN=b", "b"),
        (r"RULE:^CN=(\w+),.*$/$1/", "CN=alice,O=b", "alice"),
        ("RULE:^CN=(\\w+),.*$/$1/", "CN=\u0430lice,O=b", None),  # Cyrillic
        (r"RULE:^CN=svc(\d+)$/$1/", "CN=svc\u0661", None),
        ("RULE:^CN=(.*)$/$\u0661/", "CN=a", "$\u0661"),
        ("RULE:^CN=([a-z]{1,3}),.*$/$1/,DEFAULT", "CN=abc,O=d", "abc"),
    ],
)
def test_rules_make_users_of_subjects(rules, subject, user):
    assert SubjectRules(rules).user(subject) == user


@pytest.mark.parametrize(
    "rules",
    ["", "RULE:", "RULE:a/b", "RULE:a/b/X", "RULE:(/b/", "DEFAULT DEFAULT", "default", ",", "RULE:a/b/L/"],
)
def test_what_is_no_rule_is_refused(rules):
    with pytest.raises(ConfigError, match=r"ssl\.principal\.mapping\.rules"):
        SubjectRules(rules)


@given(st.text(min_size=1, max_size=60).filter(lambda text: "\0" not in text))
def test_default_rules_keep_any_subject(text):
    assert SubjectRules("DEFAULT").user(text) == text
