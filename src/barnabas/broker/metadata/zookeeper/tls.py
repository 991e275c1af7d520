"""TLS to ZooKeeper, from the settings ``zookeeper.ssl.*``."""

from __future__ import annotations

import ssl

from barnabas.base.errors import ConfigError
from barnabas.base.text import quoted
from barnabas.broker.config import BrokerConfig

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: start of the names of settings that need zookeeper.ssl.client.enable
_SETTINGS = "zookeeper.ssl."


def check_tls(config: BrokerConfig) -> None:
    """Check the settings of TLS to ZooKeeper, and read the files that they name.

    Raises:
        ConfigError: the settings contradict each other, or a file cannot be used.
    """
    if config.zookeeper_ssl_client_enable:
        if config.zookeeper_connect is None:
            raise ConfigError("zookeeper.ssl.client.enable=true needs zookeeper.connect")
        for name, kind in (
            ("zookeeper.ssl.keystore.type", config.zookeeper_ssl_keystore_type),
            ("zookeeper.ssl.truststore.type", config.zookeeper_ssl_truststore_type),
        ):
            if kind != "PEM":
                raise ConfigError(
                    f"{name}={quoted(kind)} is not allowed: only PEM is read; convert the file by "
                    "`openssl pkcs12 -nodes -in FILE -out FILE.pem`"
                )
        tls_context(config)
        return
    if config.zookeeper_clientCnxnSocket is not None:
        raise ConfigError(
            "zookeeper.clientCnxnSocket is for TLS: set zookeeper.ssl.client.enable=true, too, or remove it"
        )
    for name in config.given:
        if name.startswith(_SETTINGS) and name != "zookeeper.ssl.client.enable":
            raise ConfigError(
                f"{name} is set, but connections to ZooKeeper do not use TLS: set "
                f"zookeeper.ssl.client.enable=true, or remove {name}"
            )


def tls_context(config: BrokerConfig) -> ssl.SSLContext:
    """Return the TLS context of the next connection.

    It reads the files each time, because they may be renewed.

    Raises:
        ConfigError: a file cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    enabled = config.zookeeper_ssl_enabled_protocols
    if not enabled:
        raise ConfigError("zookeeper.ssl.enabled.protocols is empty: name TLSv1.2, TLSv1.3 or both")
    context.minimum_version = _VERSIONS[min(enabled)]
    context.maximum_version = _VERSIONS[max(enabled)]
    context.check_hostname = config.zookeeper_ssl_endpoint_identification_algorithm != ""
    trust, key = config.zookeeper_ssl_truststore_location, config.zookeeper_ssl_keystore_location
    if trust is None:
        context.load_default_certs()
    else:
        try:
            context.load_verify_locations(trust)
        except OSError as error:  # an SSLError is one
            raise _unusable("zookeeper.ssl.truststore.location", trust, error, "with certificates") from None
    if key is not None:
        password = config.zookeeper_ssl_keystore_password
        try:
            context.load_cert_chain(key, password=lambda: password or "")
        except OSError as error:
            content = "with a private key and its certificate; zookeeper.ssl.keystore.password is the key's"
            raise _unusable("zookeeper.ssl.keystore.location", key, error, content) from None
    return context


def _unusable(name: str, path: str, error: OSError, content: str) -> ConfigError:
    reason = (isinstance(error, ssl.SSLError) and error.reason) or error.strerror or error
    return ConfigError(f"{name}={path} cannot be used ({reason}): it must be a PEM file {content}")
