"""Maps Kerberos principals to user names with rules, in the same way as Hadoop and Kafka."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.broker.logins.java_patterns import compile_java

_SETTING = "sasl.kerberos.principal.to.local.rules"
_PRINCIPAL = re.compile(r"(?P<service>[^/@]*)(?:/(?P<host>[^/@]*))?@(?P<realm>[^/@]*)")
_RULE = re.compile(
    r"RULE:\[(?P<parts>[0-9]+):(?P<format>[^\]]*)\](?:\((?P<match>[^)]*)\))?"
    r"(?:s/(?P<pattern>[^/]*)/(?P<replacement>[^/]*)/(?P<all>g)?)?/?(?P<case>[LU]?)"
)
_PART = re.compile(r"\$([0-9])")
_REFERENCE = re.compile(r"\\(.)|\$([0-9])", re.DOTALL)


class KerberosPrincipal(NamedTuple):
    """The parts of a Kerberos principal, for example ``alice@EXAMPLE.COM`` or ``kafka/host@EXAMPLE.COM``."""

    realm: str
    service: str
    host: str | None

    @classmethod
    def parse(cls, text: str) -> KerberosPrincipal | None:
        """Parse a principal. Return None if the text has no realm, or more than one host."""
        found = _PRINCIPAL.fullmatch(text)
        return None if found is None else cls(found["realm"], found["service"], found["host"])

    @property
    def parts(self) -> list[str]:
        """The parts that a rule calls ``$0`` (realm), ``$1`` (service) and ``$2`` (host, if there is one)."""
        return [self.realm, self.service] if self.host is None else [self.realm, self.service, self.host]


class _Rule(NamedTuple):
    """A rule `RULE:[parts:format](match)s/pattern/replacement/g/L` that maps principals to user names."""

    parts: int
    format: str
    match: re.Pattern[str] | None
    pattern: re.Pattern[str] | None
    replacement: str
    #: how many matches are replaced; 0 for all
    max_replacements: int
    case: str

    def apply(self, principal: KerberosPrincipal) -> str | None:
        """Return the user's name for `principal`; None if the rule does not match the principal."""
        parts = principal.parts
        if len(parts) - 1 != self.parts:
            return None
        name = _PART.sub(lambda found: parts[int(found[1])], self.format)
        if self.match is not None and not self.match.fullmatch(name):
            return None
        if self.pattern is not None:
            name = self.pattern.sub(self._replaced, name, count=self.max_replacements)
        return name.lower() if self.case == "L" else name.upper() if self.case == "U" else name

    def _replaced(self, found: re.Match[str]) -> str:
        return _REFERENCE.sub(
            lambda reference: reference[1] or (found[int(reference[2])] or ""), self.replacement
        )


class ShortNames:
    """Implements ``sasl.kerberos.principal.to.local.rules``: the first matching rule gives the user's name.

    For example, ``RULE:[1:$1@$0](.*@EXAMPLE.ORG)s/@.*//`` gives ``alice`` for the principal
    ``alice@EXAMPLE.ORG``.

    Args:
        rules: each is ``DEFAULT``, or ``RULE:[NUMBER:FORMAT](MATCH)s/PATTERN/REPLACEMENT/g``, optionally with
            ``/L`` or ``/U`` at the end. All parts except the first are optional. A rule applies to principals
            with NUMBER parts before the realm. FORMAT makes a name from the parts ``$0`` (realm), ``$1`` and
            ``$2``. The whole name must match MATCH. The rule then replaces PATTERN in the name: the first
            occurrence, or with ``g`` all of them. L and U convert the name to lower or upper case.
        default_realm: DEFAULT matches principals of this realm, and uses their first part.

    Raises:
        ConfigError: a rule is invalid.
    """

    def __init__(self, rules: Iterable[str], default_realm: str) -> None:
        self._rules = [None if rule.strip() == "DEFAULT" else _read(rule.strip()) for rule in rules]
        self._default_realm = default_realm

    def of(self, principal: str) -> str | None:
        """Return the user's name for a Kerberos principal.

        A text without @ has no realm, and is already a user's name.

        Return None if `principal` is malformed, no rule matches, or the first match gives an empty name or a
        name with / or @.
        """
        found = KerberosPrincipal.parse(principal)
        if found is None:
            return None if "@" in principal else principal
        for rule in self._rules:
            if rule is None:
                name = found.service if found.realm == self._default_realm else None
            else:
                name = rule.apply(found)
            if name is not None:
                return None if not name or "/" in name or "@" in name else name
        return None


def _read(text: str) -> _Rule:
    found = _RULE.fullmatch(text)
    if found is None:
        raise ConfigError(
            f"{_SETTING} has '{text[:60]}', which is not a rule: write DEFAULT, or "
            "RULE:[NUMBER:FORMAT](MATCH)s/PATTERN/REPLACEMENT/g, separated by commas"
        )
    parts = int(found["parts"])
    if any(int(number) > min(parts, 2) for number in _PART.findall(found["format"])):
        raise ConfigError(f"{_SETTING} has '{text[:60]}': there are only parts $0 to ${min(parts, 2)}")
    try:
        match = None if found["match"] is None else compile_java(found["match"])
        pattern = None if found["pattern"] is None else compile_java(found["pattern"])
    except re.error as error:
        raise ConfigError(
            f"{_SETTING} has '{text[:60]}', which has an invalid regular expression: {error}"
        ) from None
    replacement = found["replacement"] or ""
    if pattern and any(int(number or 0) > pattern.groups for _, number in _REFERENCE.findall(replacement)):
        raise ConfigError(f"{_SETTING} has '{text[:60]}': the pattern has only {pattern.groups} groups")
    return _Rule(parts, found["format"], match, pattern, replacement, 0 if found["all"] else 1, found["case"])
