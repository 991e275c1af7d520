"""Settings of TLS and SASL with librdkafka's names, for connections that do not use librdkafka."""

from __future__ import annotations

import re
import secrets
import ssl
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from barnabas.base.errors import ConfigError
from barnabas.base.text import without_userinfo
from barnabas.base.tls.key_stores import pem_of_pkcs12
from barnabas.client.sasl import oauthbearer, token_of_client, unsecured_token
from barnabas.client.security import ConnectionSecurity, Sasl
from barnabas.kafka.security.sasl_client import ClientExchange, plain, scram

#: Settings of librdkafka that Python's `ssl`, or the code below, does not support, with a hint.
ONLY_LIBRDKAFKA = {
    "ssl.engine.location": "there are no OpenSSL engines here; use ssl.key.location",
    "ssl.providers": "there are no OpenSSL providers here; use ssl.key.location",
    "ssl.curves.list": "Barnabas uses OpenSSL's own choice; remove it",
    "ssl.sigalgs.list": "Barnabas uses OpenSSL's own choice; remove it",
    "sasl.oauthbearer.assertion.private.key.file": "Barnabas gets tokens by client credentials only",
    "sasl.oauthbearer.assertion.private.key.pem": "Barnabas gets tokens by client credentials only",
    "sasl.oauthbearer.assertion.file": "Barnabas gets tokens by client credentials only",
    "sasl.oauthbearer.metadata.authentication.type": "Barnabas gets tokens by client credentials only",
}

_SECRET = re.compile(r"pass|jaas|secret|token|\.(key|pem)$")

_TRUE = ("true", "t", "1")
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

Given = Mapping[str, str]


def invalid_setting(name: str, value: object, hint: str) -> ConfigError:
    """Return the error for an invalid setting, on one line and without secrets.

    `hint` is the end of the text: what the user can do.
    """
    shown = "[hidden]" if _SECRET.search(name) else without_userinfo(str(value))
    return ConfigError(f"{name}={shown} is not allowed: {hint}")


def security_of(given: Given) -> ConnectionSecurity:
    """Return the security that `security.protocol`, `ssl.*` and `sasl.*` configure.

    `given` has settings with librdkafka's names. Without `security.protocol`, there is no TLS and no login.

    Raises:
        ConfigError: the settings conflict or are not supported, or a file has the wrong content.
    """
    protocol = given.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        return ConnectionSecurity()
    for name, hint in ONLY_LIBRDKAFKA.items():
        if name in given:
            raise invalid_setting(name, given[name], hint)
    return ConnectionSecurity(
        _tls(given) if protocol.endswith("ssl") else None,
        _sasl(given) if protocol.startswith("sasl_") else None,
    )


def _tls(given: Given) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if given.get("ssl.endpoint.identification.algorithm", "https").lower() == "none":
        context.check_hostname = False
    if given.get("enable.ssl.certificate.verification", "true").lower() not in _TRUE:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    _trust(context, given, "ssl.ca.pem", "ssl.ca.location")
    _load(given, "ssl.crl.location", partial(_load_crl, context))
    _load(given, "ssl.cipher.suites", context.set_ciphers)
    password = given.get("ssl.key.password")
    key = given.get("ssl.key.location")
    _load(
        given,
        "ssl.certificate.location",
        lambda path: context.load_cert_chain(path, key, lambda: password or ""),
    )
    _load(given, "ssl.certificate.pem", partial(_load_pem, context, given.get("ssl.key.pem", ""), password))
    _load(given, "ssl.keystore.location", partial(_load_pkcs12, context, given.get("ssl.keystore.password")))
    return context


def _trust(context: ssl.SSLContext, given: Given, pem: str, location: str) -> None:
    """Make `context` trust the authorities in two settings; the system's if `given` has neither setting.

    Args:
        pem: name of the setting with certificates as PEM text.
        location: name of the setting with a file or a folder of certificates.
    """
    _load(given, pem, lambda text: context.load_verify_locations(cadata=text))
    _load(given, location, partial(_load_ca, context))
    if not {pem, location} & given.keys():
        context.load_default_certs()


def _load(given: Given, name: str, load: Callable[[str], object]) -> None:
    if name in given:
        try:
            load(given[name])
        except (OSError, ValueError) as error:
            raise invalid_setting(name, given[name], f"it cannot be used: {error}") from None


def _load_ca(context: ssl.SSLContext, where: str) -> None:
    if where == "probe":
        context.load_default_certs()
    elif Path(where).is_dir():
        context.load_verify_locations(capath=where)
    else:
        context.load_verify_locations(where)


def _load_crl(context: ssl.SSLContext, path: str) -> None:
    context.load_verify_locations(path)
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _load_pem(context: ssl.SSLContext, key: str, password: str | None, certificate: str) -> None:
    with tempfile.NamedTemporaryFile(
        "w"
    ) as file:  # readable by its owner only; `ssl` takes nothing but files
        file.write(f"{certificate}\n{key}\n")
        file.flush()
        context.load_cert_chain(file.name, password=lambda: password or "")


def _load_pkcs12(context: ssl.SSLContext, password: str | None, path: str) -> None:
    key, chain = pem_of_pkcs12(Path(path).read_bytes(), password)
    _load_pem(context, key, None, chain)


def _sasl(given: Given) -> Sasl:
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI").upper()
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    begin: Callable[[], ClientExchange]
    if mechanism == "PLAIN":
        begin = partial(plain, username, password)
    elif mechanism in _SCRAM:

        def begin() -> ClientExchange:
            return scram(mechanism, username, password, secrets.token_bytes(24))

    elif mechanism == "OAUTHBEARER":
        begin = partial(oauthbearer, _token(given), _pairs(given.get("sasl.oauthbearer.extensions", ""), ","))
    else:
        raise invalid_setting("sasl.mechanism", mechanism, f"use PLAIN, {', '.join(_SCRAM)} or OAUTHBEARER")
    return Sasl(mechanism, begin)


def _token(given: Given) -> Callable[[], str]:
    if given.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        grant = given.get("sasl.oauthbearer.grant.type", "client_credentials")
        if grant != "client_credentials":
            raise invalid_setting("sasl.oauthbearer.grant.type", grant, "use client_credentials")
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        _trust(tls, given, "https.ca.pem", "https.ca.location")
        return partial(
            token_of_client,
            _required(given, "sasl.oauthbearer.token.endpoint.url"),
            _required(given, "sasl.oauthbearer.client.id"),
            _required(given, "sasl.oauthbearer.client.secret"),
            given.get("sasl.oauthbearer.scope", ""),
            tls,
        )
    if given.get("enable.sasl.oauthbearer.unsecure.jwt", "false").lower() not in _TRUE:
        method = given.get("sasl.oauthbearer.method", "default")
        raise invalid_setting("sasl.oauthbearer.method", method, "set it to oidc, and a token's endpoint")
    return _unsecured(_pairs(given.get("sasl.oauthbearer.config", ""), " "))


def _unsecured(config: dict[str, str]) -> Callable[[], str]:
    claims: dict[str, object] = {config.get("principalClaimName", "sub"): config.get("principal", "")}
    if "scope" in config:
        claims[config.get("scopeClaimName", "scope")] = config["scope"].split(",")
    return partial(unsecured_token, claims, int(config.get("lifeSeconds", 3600)))


def _required(given: Given, name: str) -> str:
    if name not in given:
        raise ConfigError(f"{name} is missing: sasl.oauthbearer.method=oidc needs it")
    return given[name]


def _pairs(text: str, separator: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split(separator) if pair.strip())
