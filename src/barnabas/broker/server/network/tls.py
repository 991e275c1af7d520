"""Makes the TLS contexts of listeners and of connections to other brokers."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from barnabas.base.environment.key_stores import load_key, load_key_text, load_trust, load_trust_text
from barnabas.base.environment.network import ListenerContext
from barnabas.base.errors import ConfigError
from barnabas.base.text import quoted
from barnabas.broker.config import BrokerConfig

_VERIFY = {
    "none": ssl.CERT_NONE,
    "requested": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED,
}


def tls_context(config: BrokerConfig) -> ssl.SSLContext:
    """Make the TLS context for a broker's listeners from its ``ssl.*`` settings.

    Raises:
        ConfigError: a setting is missing, or a file cannot be used.
    """
    context = ListenerContext(ssl.PROTOCOL_TLS_SERVER)
    context.options |= ssl.OP_NO_RENEGOTIATION
    enabled = config.ssl_enabled_protocols
    if not enabled:
        raise ConfigError("ssl.enabled.protocols is empty: name TLSv1.2, TLSv1.3 or both")
    context.minimum_version = _VERSIONS[min(enabled)]
    context.maximum_version = _VERSIONS[max(enabled)]
    _set_ciphers(context, config)
    _load_key(context, config)
    _load_trust(context, config)
    if config.ssl_client_auth != "none" and not has_trust(config):
        raise ConfigError(
            f"ssl.client.auth={config.ssl_client_auth} needs ssl.truststore.location: name the PEM file with "
            "the certificates that sign those of clients"
        )
    context.verify_mode = _VERIFY[config.ssl_client_auth]
    return context


def peer_context(config: BrokerConfig) -> ssl.SSLContext:
    """Make the TLS context with which a broker connects to other brokers.

    A CA in the truststore must have signed the other broker's certificate. The certificate must contain that
    broker's advertised host.

    Raises:
        ConfigError: a setting is missing, or a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = _VERSIONS[min(config.ssl_enabled_protocols)]
    context.maximum_version = _VERSIONS[max(config.ssl_enabled_protocols)]
    _set_ciphers(context, config)
    _load_key(context, config)
    if not has_trust(config):
        raise ConfigError(
            "brokers reach each other by TLS, and ssl.truststore.location is not set: name the PEM file with "
            "the certificates that sign those of the brokers"
        )
    _load_trust(context, config)
    return context


def _set_ciphers(context: ssl.SSLContext, config: BrokerConfig) -> None:
    if config.ssl_cipher_suites:
        try:
            context.set_ciphers(":".join(config.ssl_cipher_suites))
        except ssl.SSLError:
            raise ConfigError(
                f"ssl.cipher.suites={','.join(config.ssl_cipher_suites)} is not allowed: OpenSSL knows none "
                "of them; `openssl ciphers` lists their names"
            ) from None


def renew_key(context: ssl.SSLContext, config: BrokerConfig) -> None:
    """Load the key and certificate that `config` names into a context, for all later connections.

    Raises:
        ConfigError: the key cannot be used.
    """
    _load_key(context, config)


def trial_certificate(config: BrokerConfig) -> bytes:
    """Test the key and the certificate with a TLS handshake in memory.

    Return the certificate that a client receives in the handshake, in DER.

    Raises:
        ConfigError: the key or its certificate cannot be used.
    """
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _load_key(server, config)
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_mode = ssl.CERT_NONE
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for _ in range(4):
            for end in ends:
                with suppress(ssl.SSLWantReadError):
                    end.do_handshake()
    except ssl.SSLError as error:
        raise ConfigError(
            f"{key_source(config)} cannot be used: a trial handshake has failed ({error.reason or error})"
        ) from None
    certificate = ends[0].getpeercert(binary_form=True)
    if certificate is None:
        raise ConfigError(f"{key_source(config)} has no certificate")
    return certificate


#: OpenSSL's reasons for a client that does not use TLS
_NOT_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "UNKNOWN_PROTOCOL", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG"}
)


def why_not_secured(error: Exception) -> str | None:
    """Return the reason for a failed TLS handshake, for the log; None if the client has only disconnected."""
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        if reason in ("HTTP_REQUEST", "HTTPS_PROXY_REQUEST"):
            return "it speaks HTTP, and this listener the protocol of Kafka over TLS"
        if reason in _NOT_TLS:
            return "it does not speak TLS, and this listener does: set its security.protocol"
        return f"TLS did not begin: {reason.lower().replace('_', ' ')}"
    if isinstance(error, TimeoutError) or "taking longer" in str(error):
        return "TLS did not begin in time"
    return None if isinstance(error, OSError) else f"TLS did not begin: {error}"


_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def has_trust(config: BrokerConfig) -> bool:
    """Whether the settings have a truststore: CA certificates that verify the certificates of others."""
    return config.ssl_truststore_location is not None or config.ssl_truststore_certificates is not None


def key_source(config: BrokerConfig) -> str:
    """Return a text for messages: the name of the setting that has the broker's key.

    It is ``ssl.keystore.location=PATH`` for a key in a file, and ``ssl.keystore.key`` for a key in the
    setting itself.
    """
    path = config.ssl_keystore_location
    return "ssl.keystore.key" if path is None else f"ssl.keystore.location={path}"


def _load_key(context: ssl.SSLContext, config: BrokerConfig) -> None:
    path = config.ssl_keystore_location
    key, chain = config.ssl_keystore_key, config.ssl_keystore_certificate_chain
    _refuse_jks("ssl.keystore.type", config.ssl_keystore_type)
    if path is not None and (key is not None or chain is not None):
        raise ConfigError("ssl.keystore.location and ssl.keystore.key are both set: remove one of them")
    if (key is None) != (chain is None):
        raise ConfigError(
            "ssl.keystore.key and ssl.keystore.certificate.chain are only used together: set both"
        )
    if path is None and key is None:
        raise ConfigError(
            "a listener speaks TLS, and ssl.keystore.location is not set: name the file with the "
            "broker's key and certificate, PEM or PKCS12"
        )
    kind = "a PEM file with a private key and its certificate behind it" if path else "the chain's key"
    kind += "; ssl.key.password is for an encrypted key"
    with _explained(key_source(config), kind, "ssl.keystore.password" if path else None):
        if path is not None:
            load_key(context, path, config.ssl_keystore_password, config.ssl_key_password)
        elif key is not None and chain is not None:
            load_key_text(context, key, chain, config.ssl_key_password)


@contextmanager
def _explained(source: str, kind: str, password: str | None) -> Iterator[None]:
    """Enter a context that converts the errors of a key or of certificates to ConfigError.

    It converts ssl.SSLError, OSError and ValueError.

    Args:
        source: text for the message: the setting that was read, for example ``ssl.keystore.location=PATH``.
        kind: text for the message: what the setting must contain.
        password: name of the setting with the file's password; None if `source` names no file.
    """
    try:
        yield
    except ssl.SSLError as error:
        raise ConfigError(f"{source} cannot be used ({error.reason or error}): it must be {kind}") from None
    except OSError as error:
        raise ConfigError(f"{source} cannot be read: {error.strerror}") from None
    except ValueError as error:
        hint = f"; {password} is that of PKCS12" if password else ""
        raise ConfigError(f"{source} cannot be used: {error}{hint}") from None


def _refuse_jks(setting: str, kind: str) -> None:
    if kind not in ("PEM", "PKCS12"):
        raise ConfigError(
            f"{setting}={quoted(kind)} is not allowed: PEM and PKCS12 are read; convert the file by `keytool "
            "-importkeystore -srckeystore FILE -destkeystore FILE.p12 -deststoretype PKCS12`"
        )


def _load_trust(context: ssl.SSLContext, config: BrokerConfig) -> None:
    path, certificates = config.ssl_truststore_location, config.ssl_truststore_certificates
    _refuse_jks("ssl.truststore.type", config.ssl_truststore_type)
    if path is not None and certificates is not None:
        raise ConfigError(
            "ssl.truststore.location and ssl.truststore.certificates are both set: remove one of them"
        )
    source = "ssl.truststore.certificates" if path is None else f"ssl.truststore.location={path}"
    kind = "certificates, PEM or in a file PKCS12, too"
    with _explained(source, kind, "ssl.truststore.password" if path else None):
        if path is not None:
            load_trust(context, path, config.ssl_truststore_password)
        elif certificates is not None:
            load_trust_text(context, certificates)
