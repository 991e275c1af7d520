"""The security settings of `kafka.*`, under librdkafka's names, for connections of our own."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

from barnabas.client.sasl import Exchange, oauthbearer, plain, scram, token_of_client, unsecured_token
from barnabas.client.security import ConnectionSecurity, Sasl
from barnabas.errors import ConfigError
from barnabas.spark.option_values import refuse

#: What librdkafka can and Python's `ssl`, or the code below, cannot, with the cure.
NOT_WHEN_READING = {
    "ssl.keystore.location": "reading takes ssl.certificate.location and ssl.key.location: take the PKCS#12 "
    "file apart with `openssl pkcs12`",
    "ssl.engine.location": "reading has no OpenSSL engines; use ssl.key.location",
    "ssl.providers": "reading has no OpenSSL providers; use ssl.key.location",
    "ssl.curves.list": "reading takes OpenSSL's own choice; remove it",
    "ssl.sigalgs.list": "reading takes OpenSSL's own choice; remove it",
    "sasl.oauthbearer.assertion.private.key.file": "reading gets tokens by client credentials only",
    "sasl.oauthbearer.assertion.private.key.pem": "reading gets tokens by client credentials only",
    "sasl.oauthbearer.assertion.file": "reading gets tokens by client credentials only",
    "sasl.oauthbearer.metadata.authentication.type": "reading gets tokens by client credentials only",
}

_TRUE = ("true", "t", "1")
_SCRAM = ("SCRAM-SHA-256", "SCRAM-SHA-512")

Given = Mapping[str, str]


def security_of(given: Given) -> ConnectionSecurity:
    """What `security.protocol`, `ssl.*` and `sasl.*` ask for.

    Raises:
        ConfigError: they ask for what reading cannot do; or a file does not hold what it should.
    """
    protocol = given.get("security.protocol", "plaintext").lower()
    if protocol == "plaintext":
        return ConnectionSecurity()
    for name, cure in NOT_WHEN_READING.items():
        if name in given:
            raise refuse(f"kafka.{name}", given[name], cure)
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
    return context


def _trust(context: ssl.SSLContext, given: Given, pem: str, location: str) -> None:
    """Take the authorities that two settings name, or the system's when neither is given."""
    _load(given, pem, lambda text: context.load_verify_locations(cadata=text))
    _load(given, location, partial(_load_ca, context))
    if not {pem, location} & given.keys():
        context.load_default_certs()


def _load(given: Given, name: str, load: Callable[[str], object]) -> None:
    if name in given:
        try:
            load(given[name])
        except (OSError, ValueError) as error:
            raise refuse(f"kafka.{name}", given[name], f"it cannot be used: {error}") from None


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


def _sasl(given: Given) -> Sasl:
    mechanism = (given.get("sasl.mechanism") or given.get("sasl.mechanisms") or "GSSAPI").upper()
    username, password = given.get("sasl.username", ""), given.get("sasl.password", "")
    begin: Callable[[], Exchange]
    if mechanism == "PLAIN":
        begin = partial(plain, username, password)
    elif mechanism in _SCRAM:
        begin = partial(scram, mechanism, username, password)
    elif mechanism == "OAUTHBEARER":
        begin = partial(oauthbearer, _token(given), _pairs(given.get("sasl.oauthbearer.extensions", ""), ","))
    else:
        raise refuse("kafka.sasl.mechanism", mechanism, f"use PLAIN, {', '.join(_SCRAM)} or OAUTHBEARER")
    return Sasl(mechanism, begin)


def _token(given: Given) -> Callable[[], str]:
    if given.get("sasl.oauthbearer.method", "default").lower() == "oidc":
        grant = given.get("sasl.oauthbearer.grant.type", "client_credentials")
        if grant != "client_credentials":
            raise refuse("kafka.sasl.oauthbearer.grant.type", grant, "use client_credentials")
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
        raise refuse("kafka.sasl.oauthbearer.method", method, "set it to oidc, and a token's endpoint")
    return _unsecured(_pairs(given.get("sasl.oauthbearer.config", ""), " "))


def _unsecured(config: dict[str, str]) -> Callable[[], str]:
    claims: dict[str, object] = {config.get("principalClaimName", "sub"): config.get("principal", "")}
    if "scope" in config:
        claims[config.get("scopeClaimName", "scope")] = config["scope"].split(",")
    return partial(unsecured_token, claims, int(config.get("lifeSeconds", 3600)))


def _required(given: Given, name: str) -> str:
    if name not in given:
        raise ConfigError(f"option kafka.{name} is missing: sasl.oauthbearer.method=oidc needs it")
    return given[name]


def _pairs(text: str, separator: str) -> dict[str, str]:
    return dict(pair.partition("=")[::2] for pair in text.split(separator) if pair.strip())
