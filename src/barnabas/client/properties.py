"""Converts a client's properties in Java's form (client.properties) to settings of librdkafka.

Names that only librdkafka has do not change. Settings that do not concern connections (``acks``,
``group.id``, serializers) are listed separately. Users often share a file with Java's tools, and such
settings are then ignored.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.tls.key_stores import kind_of, trusted_of_pkcs12
from barnabas.client.errors import SettingError
from barnabas.kafka.security.jaas import parse_jaas

#: settings of connections that have the same name and meaning in librdkafka and in Java
_SAME = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "client.dns.lookup",
        "broker.address.family",
        "broker.address.ttl",
        "connections.max.idle.ms",
        "enable.ssl.certificate.verification",
        "enable.sasl.oauthbearer.unsecure.jwt",
        "https.ca.location",
        "https.ca.pem",
        "metadata.max.age.ms",
        "reconnect.backoff.ms",
        "reconnect.backoff.max.ms",
        "retry.backoff.ms",
        "retry.backoff.max.ms",
        "security.protocol",
        "sasl.mechanism",
        "sasl.username",
        "sasl.password",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
        "sasl.oauthbearer.config",
        "sasl.oauthbearer.extensions",
        "sasl.oauthbearer.grant.type",
        "sasl.oauthbearer.method",
        "sasl.oauthbearer.scope",
        "sasl.oauthbearer.token.endpoint.url",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.timeout.ms",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.cipher.suites",
        "ssl.crl.location",
        "ssl.key.location",
        "ssl.key.password",
        "ssl.key.pem",
        "ssl.keystore.location",
        "ssl.keystore.password",
    }
)
_RENAMED = {"sasl.mechanisms": "sasl.mechanism", "metadata.broker.list": "bootstrap.servers"}
#: Java's settings of connections that this module translates
JAVA = frozenset(
    {
        "sasl.jaas.config",
        "sasl.login.callback.handler.class",
        "ssl.enabled.protocols",
        "ssl.endpoint.identification.algorithm",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.keystore.type",
        "ssl.protocol",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.type",
    }
)
#: Java's settings for the time of a renewed login: librdkafka has its own
_HARMLESS = re.compile(
    r"sasl\.login\.(refresh|retry|connect|read)\..*|sasl\.kerberos\..*|ssl\.(key|trust)manager\..*"
)
_HINTS = {
    "config.providers": "write the values themselves, and make the file readable by its owner only",
    "sasl.client.callback.handler.class": "Java classes do not run here; remove it",
    "sasl.login.class": "Java classes do not run here; remove it",
    "security.providers": "Java classes do not run here; remove it",
    "ssl.engine.factory.class": "Java classes do not run here; remove it",
    "ssl.provider": "OpenSSL is what speaks TLS here; remove it",
    "ssl.secure.random.implementation": "OpenSSL is what speaks TLS here; remove it",
}
_OF_SECURITY = ("sasl.", "security.", "ssl.", "enable.ssl.", "enable.sasl.", "https.")
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_OWN_LOGIN = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = (*_OWN_LOGIN, "OAUTHBEARER")
_TOKEN_HANDLERS = ("OAuthBearerLoginCallbackHandler", "OAuthBearerUnsecuredLoginCallbackHandler")


class Translated(NamedTuple):
    """A client's settings of connections, and the names of its other settings (`ignored`)."""

    #: settings of connections, by librdkafka's names
    settings: dict[str, str]
    #: names of settings that do not concern connections
    ignored: list[str]


def translate(given: Mapping[str, str]) -> Translated:
    """Return the connection settings in `given`, under librdkafka's names.

    The function reads the certificates of a PKCS#12 truststore. For a keystore, which has a private key, it
    only translates the path.

    Raises:
        SettingError: a setting is unknown or not supported; the text has its name and a hint, without
            secrets.
    """
    settings: dict[str, str] = {}
    ignored = []
    for name, value in given.items():
        if "${" in value:
            raise SettingError(f"{name} has a placeholder, ${{...}}: {_HINTS['config.providers']}")
        if name in _SAME:
            settings[name] = value.strip()
        elif name in _RENAMED:
            settings[_RENAMED[name]] = value.strip()
        elif name in _HINTS:
            raise SettingError(f"{name} cannot be honoured: {_HINTS[name]}")
        elif name not in JAVA:
            _require_harmless(name)
            ignored.append(name)
    _take_protocol(settings)
    _take_login(given, settings)
    _take_versions(given)
    _take_trust(given, settings)
    _take_key(given, settings)
    if "ssl.endpoint.identification.algorithm" in given:
        algorithm = given["ssl.endpoint.identification.algorithm"].strip() or "none"
        settings["ssl.endpoint.identification.algorithm"] = algorithm.lower()
    return Translated(settings, ignored)


def _require_harmless(name: str) -> None:
    """Raise SettingError for an unsupported setting `name` that must not be ignored.

    It must not be ignored if it concerns security, or if it seems to be a misspelled name of a supported
    setting.
    """
    if _HARMLESS.fullmatch(name):
        return
    known = sorted(_SAME | JAVA)
    close = difflib.get_close_matches(name, known, 1, 0.85)
    if close:
        raise SettingError(f"{name} is not a client's setting: did you mean {close[0]}?")
    if name.startswith(_OF_SECURITY):
        raise SettingError(f"{name} cannot be honoured: remove it, or see docs/use/security.md for what can")


def _take_protocol(settings: dict[str, str]) -> None:
    protocol = settings.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in _PROTOCOLS:
        raise SettingError(f"security.protocol={protocol} is not allowed: write {', '.join(_PROTOCOLS)}")
    if "security.protocol" in settings:
        settings["security.protocol"] = protocol


def _take_login(given: Mapping[str, str], settings: dict[str, str]) -> None:
    handler = given.get("sasl.login.callback.handler.class", "").rpartition(".")[2]
    if handler and handler not in _TOKEN_HANDLERS:
        raise SettingError(
            "sasl.login.callback.handler.class cannot be honoured: Java classes do not run here; "
            f"{_TOKEN_HANDLERS[0]} is known"
        )
    if "sasl.jaas.config" in given:
        _take_jaas(given["sasl.jaas.config"], settings)
    if not settings.get("security.protocol", "").startswith("SASL_"):
        return
    mechanism = settings.get("sasl.mechanism", "GSSAPI").upper()
    if mechanism not in _MECHANISMS:
        raise SettingError(f"sasl.mechanism={mechanism} cannot be honoured: use {', '.join(_MECHANISMS)}")
    settings["sasl.mechanism"] = mechanism
    if mechanism in _OWN_LOGIN:
        for name in ("sasl.username", "sasl.password"):
            if name not in settings:
                raise SettingError(
                    f"{name} is missing: {mechanism} needs it, or sasl.jaas.config; or give --user NAME"
                )
    elif "sasl.oauthbearer.token.endpoint.url" in settings:
        settings.setdefault("sasl.oauthbearer.method", "oidc")


def _take_jaas(text: str, settings: dict[str, str]) -> None:
    try:
        module, options = parse_jaas(text)
    except ConfigError as error:
        raise SettingError(str(error)) from None
    if module in ("PlainLoginModule", "ScramLoginModule"):
        if options.get("tokenauth") == "true":
            raise SettingError(
                "sasl.jaas.config cannot be honoured: tokenauth is not supported; log in by a password"
            )
        names = {"username": "sasl.username", "password": "sasl.password"}
    elif module == "OAuthBearerLoginModule":
        names = {
            "clientId": "sasl.oauthbearer.client.id",
            "clientSecret": "sasl.oauthbearer.client.secret",
            "scope": "sasl.oauthbearer.scope",
        }
        _take_token(options, settings)
    else:
        raise SettingError(
            f"sasl.jaas.config cannot be honoured: {module} is none of the modules that are known: "
            "PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule"
        )
    for option, name in names.items():
        if option in options:
            settings[name] = options[option]


def _take_token(options: Mapping[str, str], settings: dict[str, str]) -> None:
    """Translate OAUTHBEARER's JAAS options for extensions and unsecured tokens into `settings`."""
    extensions = [
        f"{name.removeprefix('extension_')}={value}"
        for name, value in options.items()
        if name.startswith("extension_")
    ]
    if extensions:
        settings["sasl.oauthbearer.extensions"] = ",".join(extensions)
    if "unsecuredLoginStringClaim_sub" in options:
        settings["enable.sasl.oauthbearer.unsecure.jwt"] = "true"
        settings["sasl.oauthbearer.config"] = f"principal={options['unsecuredLoginStringClaim_sub']}"


def _take_versions(given: Mapping[str, str]) -> None:
    """Raise SettingError for TLS versions that exclude TLS 1.2, and for cipher suites with Java's names.

    OpenSSL chooses between TLS 1.2 and 1.3.
    """
    enabled = {each.strip() for each in given.get("ssl.enabled.protocols", "TLSv1.2").split(",")}
    if "TLSv1.2" not in enabled or given.get("ssl.protocol", "TLS") not in ("TLS", "TLSv1.2", "TLSv1.3"):
        raise SettingError(
            "ssl.enabled.protocols and ssl.protocol cannot be honoured: TLS 1.2 and 1.3 are spoken, "
            "whichever the broker prefers; remove them and restrict the broker"
        )
    if "_" in given.get("ssl.cipher.suites", ""):
        raise SettingError("ssl.cipher.suites cannot be honoured: write OpenSSL's names, or remove it")


def _take_trust(given: Mapping[str, str], settings: dict[str, str]) -> None:
    inline = given.get("ssl.truststore.certificates")
    if inline is not None:
        settings["ssl.ca.pem"] = inline
    path = given.get("ssl.truststore.location", "").strip()
    if not path:
        return
    data = _read("ssl.truststore.location", path)
    kind = kind_of(data)
    if kind == "PEM":
        settings["ssl.ca.location"] = path
        return
    _refuse_jks("ssl.truststore.location", path, kind)
    try:
        settings["ssl.ca.pem"] = trusted_of_pkcs12(data, given.get("ssl.truststore.password"))
    except (ValueError, ConfigError, SettingError) as error:
        raise SettingError(
            f"ssl.truststore.location={path} cannot be used ({error}): see ssl.truststore.password"
        ) from None


def _take_key(given: Mapping[str, str], settings: dict[str, str]) -> None:
    if "ssl.keystore.certificate.chain" in given or "ssl.keystore.key" in given:
        settings["ssl.certificate.pem"] = given.get("ssl.keystore.certificate.chain", "")
        settings["ssl.key.pem"] = given.get("ssl.keystore.key", "")
    path = settings.get("ssl.keystore.location")
    if not path:
        settings.pop("ssl.keystore.location", None)
        return
    kind = kind_of(_read("ssl.keystore.location", path))
    _refuse_jks("ssl.keystore.location", path, kind)
    if kind == "PEM":  # key and certificates in one file, as Kafka takes them (KIP-651)
        settings["ssl.certificate.location"] = settings["ssl.key.location"] = path
        del settings["ssl.keystore.location"]
        settings.pop("ssl.keystore.password", None)


def _refuse_jks(name: str, path: str, kind: str) -> None:
    if kind == "JKS":
        raise SettingError(
            f"{name}={path} is a JKS store, which only Java reads: convert it by `keytool -importkeystore "
            f"-srckeystore {path} -destkeystore {Path(path).stem}.p12 -deststoretype PKCS12`"
        )


def _read(name: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise SettingError(f"{name}={path} cannot be read: {error.strerror}") from None
