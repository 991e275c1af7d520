"""Maps certificates to user names: the subject in Java's format, and rules that shorten it (KIP-371)."""

from __future__ import annotations

import re
from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.broker.logins.java_patterns import compile_java

#: Java writes these attributes as words, and others as numbers with the value in hexadecimal (RFC 2253)
_WORDS = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "2.5.4.9": "STREET",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
_ESCAPED = re.compile(r'([,=+<>#;"\\])')
_RULE = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<name>(?:\\.|[^\\/])*)/(?P<case>[LU]?))"
    r"\s*(?:,|$)"
)
_REFERENCE = re.compile(r"\\(.)|\$([0-9])")


def subject_of(certificate: bytes) -> str:
    """Return the subject of a DER certificate with the most specific part first, like ``CN=alice,O=Example``.

    This is the format of Java's `X500Principal.getName()`, which ACLs of Apache Kafka use.

    Raises:
        ValueError: the bytes are not a certificate.
    """
    from cryptography import x509

    subject = x509.load_der_x509_certificate(certificate).subject
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(subject.rdns))


def _attribute(attribute: object) -> str:
    from cryptography import x509

    assert isinstance(attribute, x509.NameAttribute)
    number = attribute.oid.dotted_string
    word = _WORDS.get(number)
    if word is None or not isinstance(attribute.value, str):
        return f"{word or number}=#{_der(attribute).hex()}"
    value = _ESCAPED.sub(r"\\\1", attribute.value).replace("\0", r"\00")
    begin = len(value) - len(value.lstrip(" "))
    end = len(value.rstrip(" ")) if begin < len(value) else begin
    space = "\\ "
    return f"{word}={space * begin}{value[begin:end]}{space * (len(value) - end)}"


def _der(attribute: object) -> bytes:
    """Return the DER encoding of an attribute's value, with its tag and length.

    The function encodes a name with only this attribute, and returns the bytes after the attribute's object
    identifier.
    """
    from cryptography import x509

    assert isinstance(attribute, x509.NameAttribute)
    encoded = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # of the name, of its only part, of the pair of number and value
        encoded = _content(encoded)
    return encoded[2 + encoded[1] :]  # an object identifier is never long


def _content(encoded: bytes) -> bytes:
    """Return `encoded` without the tag and the length of its first DER element."""
    long = encoded[1] & 0x7F if encoded[1] & 0x80 else 0
    return encoded[2 + long :]


class _Rule(NamedTuple):
    """One mapping rule. `pattern` is None for ``DEFAULT``, which returns the whole subject."""

    pattern: re.Pattern[str] | None
    name: str = ""
    case: str = ""

    def apply(self, subject: str) -> str | None:
        """Return the user's name; None if the rule does not match."""
        if self.pattern is None:
            return subject
        found = self.pattern.fullmatch(subject)
        if found is None:
            return None

        def part(reference: re.Match[str]) -> str:
            if reference[1]:
                return reference[1]
            number = int(reference[2])
            return (found[number] or "") if number <= self.pattern.groups else reference[0]  # type: ignore[union-attr]

        name = _REFERENCE.sub(part, self.name)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name


class SubjectRules:
    """Implements ``ssl.principal.mapping.rules``: the first matching rule gives the user's name.

    Args:
        text: a comma-separated list of rules, each ``RULE:pattern/name/``, ``RULE:pattern/name/L`` (convert
            the name to lower case), ``RULE:pattern/name/U`` (upper case) or ``DEFAULT`` (the whole subject).
            The whole subject must match the pattern. In the name, ``$1`` is the pattern's first group.

    Raises:
        ConfigError: the text is invalid, or has no rule.
    """

    def __init__(self, text: str) -> None:
        self._rules: list[_Rule] = []
        at = 0
        while at < len(text):
            rule = _RULE.match(text, at)
            if rule is None:
                raise ConfigError(
                    f"ssl.principal.mapping.rules cannot be read from '{text[at : at + 60]}' on: write "
                    "RULE:PATTERN/NAME/, RULE:PATTERN/NAME/L or DEFAULT, separated by commas"
                )
            self._rules.append(_Rule(None) if rule["default"] else _read(rule))
            at = rule.end()
        if not self._rules:
            raise ConfigError("ssl.principal.mapping.rules is empty: write DEFAULT for the whole subject")

    def user(self, subject: str) -> str | None:
        """Return the user's name for the subject of a certificate. Return None if no rule matches."""
        return next((name for rule in self._rules if (name := rule.apply(subject)) is not None), None)


def _read(rule: re.Match[str]) -> _Rule:
    try:
        return _Rule(compile_java(rule["pattern"]), rule["name"], rule["case"])
    except re.error as error:
        raise ConfigError(
            f"ssl.principal.mapping.rules has '{rule['pattern']}', which is not a regular expression: {error}"
        ) from None
