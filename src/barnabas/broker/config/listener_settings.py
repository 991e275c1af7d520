"""Settings of single listeners: ``listener.name.NAME.[MECHANISM.]SETTING`` (KIP-103)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_MECHANISMS = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer", "gssapi")
_BY_MECHANISM = ("connections.max.reauth.ms", "sasl.jaas.config")
_OF_OAUTHBEARER = (
    "sasl.oauthbearer.allow.unverified.audience",
    "sasl.oauthbearer.allow.unverified.issuer",
    "sasl.oauthbearer.clock.skew.seconds",
    "sasl.oauthbearer.expected.audience",
    "sasl.oauthbearer.expected.issuer",
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.url",
    "sasl.oauthbearer.scope.claim.name",
    "sasl.oauthbearer.sub.claim.name",
)
_OF_GSSAPI = (
    "sasl.kerberos.kinit.cmd",
    "sasl.kerberos.min.time.before.relogin",
    "sasl.kerberos.principal.to.local.rules",
    "sasl.kerberos.service.name",
    "sasl.kerberos.ticket.renew.jitter",
    "sasl.kerberos.ticket.renew.window.factor",
)
_BY_LISTENER = (
    *_BY_MECHANISM,
    *_OF_OAUTHBEARER,
    *_OF_GSSAPI,
    "max.connection.creation.rate",
    "max.connections",
    "sasl.enabled.mechanisms",
    "ssl.allow.dn.changes",
    "ssl.allow.san.changes",
    "ssl.cipher.suites",
    "ssl.client.auth",
    "ssl.enabled.protocols",
    "ssl.key.password",
    "ssl.keystore.certificate.chain",
    "ssl.keystore.key",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "ssl.keystore.type",
    "ssl.principal.mapping.rules",
    "ssl.truststore.certificates",
    "ssl.truststore.location",
    "ssl.truststore.password",
    "ssl.truststore.type",
)
#: of these, what may be changed while a broker runs (KIP-226): keys, certificates, and limits (KIP-612)
_WHILE_RUNNING = frozenset(
    {
        "max.connection.creation.rate",
        "max.connections",
        "ssl.key.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.type",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
#: limits that also exist for all listeners together; they need neither TLS nor SASL
LIMITS = frozenset({"max.connection.creation.rate", "max.connections"})
_NAME = re.compile(rf"listener\.name\.([A-Za-z0-9_-]+)\.(?:({'|'.join(_MECHANISMS)})\.)?(.+)", re.IGNORECASE)


class ListenerSetting(NamedTuple):
    """A setting of one listener, or of one SASL mechanism on it, that overrides a setting of the broker.

    `listener` and `mechanism` are in lower case; `mechanism` is empty if the setting applies to the listener.
    """

    listener: str
    mechanism: str
    #: the name of the overridden setting
    overridden: str

    @property
    def name(self) -> str:
        """The full name of the setting, as in a settings file."""
        mechanism = f"{self.mechanism}." if self.mechanism else ""
        return f"listener.name.{self.listener}.{mechanism}{self.overridden}"

    @property
    def may_change(self) -> bool:
        """Whether the value can change while a broker runs."""
        return self.overridden in _WHILE_RUNNING

    @property
    def may_precede(self) -> bool:
        """Whether a running broker accepts this setting for a listener that it does not have yet.

        The broker rejects a change of the setting for a listener that it has.
        """
        return self.overridden in _OF_GSSAPI

    @classmethod
    def parse(cls, name: str) -> ListenerSetting | None:
        """Parse the full name of a setting for a listener, such as ``listener.name.NAME.SETTING``.

        Return None for any other name. Also return None if SETTING cannot be set for a single listener or,
        when the name has a SASL mechanism, for this mechanism.
        """
        found = _NAME.fullmatch(name)
        if found is None:
            return None
        listener, mechanism, overridden = found[1].lower(), (found[2] or "").lower(), found[3]
        allowed: tuple[str, ...] = _BY_MECHANISM if mechanism else _BY_LISTENER
        if mechanism == "oauthbearer":
            allowed += _OF_OAUTHBEARER
        elif mechanism == "gssapi":
            allowed += _OF_GSSAPI
        return cls(listener, mechanism, overridden) if overridden in allowed else None


def overrides(given: Mapping[str, str], listener: str, mechanism: str) -> dict[str, str]:
    """Return the values of one listener and mechanism, by the names of the settings that they override.

    A value for the mechanism has precedence over one for the listener.

    Args:
        given: settings as text, by full name.
        listener: the name of the listener, in any case.
        mechanism: the SASL mechanism; "" for only the values of the listener.
    """
    found: dict[str, str] = {}
    for wanted in ("", mechanism.lower()) if mechanism else ("",):
        for name, text in given.items():
            setting = ListenerSetting.parse(name)
            if setting is not None and (setting.listener, setting.mechanism) == (listener.lower(), wanted):
                found[setting.overridden] = text
    return found
