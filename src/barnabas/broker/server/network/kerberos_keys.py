"""Reads the broker's Kerberos keys, which verify clients' tickets (SASL/GSSAPI; needs package `gssapi`)."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.installation import pip_install
from barnabas.base.text import logger_of
from barnabas.broker.config import BrokerConfig
from barnabas.broker.logins.gssapi import GssapiExchange
from barnabas.broker.logins.kerberos import ShortNames
from barnabas.broker.server.network.endpoint import Endpoint
from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.jaas import parse_jaas

log = logger_of(__name__)

_MODULE = "Krb5LoginModule"

#: begins a login by a ticket
BeginGssapi = Callable[[], GssapiExchange]


def open_kerberos(config: BrokerConfig, endpoints: Iterable[Endpoint]) -> Mapping[str, BeginGssapi]:
    """Read the keytab of each listener that accepts GSSAPI, and log the names of these listeners.

    The result has, by listener name, the function that begins a client's login. It is empty if no listener
    accepts GSSAPI.

    Raises:
        ConfigError: the package `gssapi` is missing, the settings do not give one service name, or the keys
            cannot be read.
    """
    by_listener = read_kerberos(config, endpoints)
    for name in by_listener:
        log.info("listener %s accepts tickets of Kerberos", name)
    return by_listener


def read_kerberos(config: BrokerConfig, endpoints: Iterable[Endpoint]) -> Mapping[str, BeginGssapi]:
    """Read the keytab of each listener that accepts GSSAPI. Any thread can call this function.

    The result has, by listener name, the function that begins a client's login. It has only listeners that
    accept GSSAPI.

    Raises:
        ConfigError: the package `gssapi` is missing, the settings do not give one service name, or the keys
            cannot be read.
    """
    by_listener: dict[str, BeginGssapi] = {}
    for endpoint in endpoints:
        if (
            not endpoint.has_sasl
            or "GSSAPI" not in config.for_listener(endpoint.name).sasl_enabled_mechanisms
        ):
            continue
        own = config.for_listener(endpoint.name, "GSSAPI")
        _warn_of_ticket_settings(own)
        gssapi = _package()
        options = _jaas_options(own)
        credentials = _credentials(gssapi, options, _service(own, options))
        names = ShortNames(own.sasl_kerberos_principal_to_local_rules, _default_realm(gssapi))
        by_listener[endpoint.name] = _begin(gssapi, credentials, names)
    return by_listener


def _begin(gssapi: Any, credentials: Any, names: ShortNames) -> BeginGssapi:
    return lambda: GssapiExchange(_TicketContext(gssapi, credentials), names)


class _TicketContext:
    """Implements `barnabas.broker.logins.gssapi.Context` with the system's Kerberos library.

    Only one thread at a time may use a context.
    """

    def __init__(self, gssapi: Any, credentials: Any) -> None:
        self._gssapi = gssapi
        self._context = gssapi.SecurityContext(creds=credentials, usage="accept")

    @property
    def is_established(self) -> bool:
        return bool(self._context.complete)

    @property
    def client(self) -> str:
        return str(self._context.initiator_name)

    def step(self, token: bytes) -> bytes:
        answer: bytes | None = self._checked(self._context.step, token)
        return answer or b""

    def wrap(self, message: bytes) -> bytes:
        wrapped: bytes = self._checked(self._context.wrap, message, False).message
        return wrapped

    def unwrap(self, message: bytes) -> bytes:
        unwrapped: bytes = self._checked(self._context.unwrap, message).message
        return unwrapped

    def _checked(self, call: Callable[..., Any], *args: object) -> Any:
        try:
            return call(*args)
        except self._gssapi.exceptions.GSSError as error:
            raise SaslError(f"Kerberos refuses it: {_reason(error)}") from None


def _package() -> Any:
    try:
        return importlib.import_module("gssapi")
    except (ImportError, OSError) as error:  # the package, or the system's libraries
        raise ConfigError(
            "sasl.enabled.mechanisms has GSSAPI, which needs the system's Kerberos libraries and the package "
            f"gssapi: {pip_install('gssapi')} ({error})"
        ) from None


def _jaas_options(config: BrokerConfig) -> Mapping[str, str]:
    """Return the options of `Krb5LoginModule` in ``sasl.jaas.config``.

    The result is empty if the setting is missing or has another module.
    """
    jaas = None if config.sasl_jaas_config is None else parse_jaas(config.sasl_jaas_config)
    return jaas.options if jaas is not None and jaas.module == _MODULE else {}


def _service(config: BrokerConfig, options: Mapping[str, str]) -> str:
    """Return the service name for which clients get tickets: the first part of the broker's principal.

    Args:
        config: settings of the listener.
        options: options of `Krb5LoginModule` (`_jaas_options`).

    Raises:
        ConfigError: no setting has the name, or two settings have different names.
    """
    setting, option = config.sasl_kerberos_service_name, options.get("serviceName")
    if setting and option and setting != option:
        raise ConfigError(
            f"sasl.kerberos.service.name={setting}, and serviceName in sasl.jaas.config is {option}: "
            "remove one"
        )
    principal = options.get("principal", "").partition("@")[0].partition("/")[0]
    service = setting or option or principal.removeprefix("*")
    if not service:
        raise ConfigError(
            "GSSAPI needs sasl.kerberos.service.name: the first part of the broker's principal, usually kafka"
        )
    return service


def _credentials(gssapi: Any, options: Mapping[str, str], service: str) -> Any:
    """Return the keys of the configured principal, by default of `service` on this machine.

    Args:
        gssapi: the package `gssapi`.
        options: options of `Krb5LoginModule`. Without `principal`, or with ``*``, the default principal is
            used. Without `keyTab`, the system's default keytab is used.
        service: service name for which clients get tickets.

    Raises:
        ConfigError: the keytab has no such keys, or cannot be read.
    """
    principal, keytab = options.get("principal"), options.get("keyTab")
    if principal is None or principal == "*":
        name = gssapi.Name(service, gssapi.NameType.hostbased_service)
    else:
        name = gssapi.Name(principal, gssapi.NameType.kerberos_principal)
    store = {} if keytab is None else {"store": {"keytab": keytab.removeprefix("file://")}}
    try:
        return gssapi.Credentials(name=name, usage="accept", **store)
    except gssapi.exceptions.GSSError as error:
        where = keytab or "the system's default (KRB5_KTNAME)"
        raise ConfigError(
            f"the Kerberos keys of {principal or service} cannot be read from the keytab {where}: "
            f"{_reason(error)}; keyTab and principal of {_MODULE} in sasl.jaas.config name them"
        ) from None


def _default_realm(gssapi: Any) -> str:
    """Return the default realm from the system's krb5.conf; empty if the file has none."""
    name = gssapi.Name("user", gssapi.NameType.user)
    try:
        return str(name.canonicalize(gssapi.MechType.kerberos)).rpartition("@")[2]
    except gssapi.exceptions.GSSError:
        return ""


def _reason(error: Any) -> str:
    return " ".join(str(error).split())


def _warn_of_ticket_settings(config: BrokerConfig) -> None:
    given = {
        "sasl.kerberos.kinit.cmd": config.sasl_kerberos_kinit_cmd,
        "sasl.kerberos.min.time.before.relogin": config.sasl_kerberos_min_time_before_relogin,
        "sasl.kerberos.ticket.renew.jitter": config.sasl_kerberos_ticket_renew_jitter,
        "sasl.kerberos.ticket.renew.window.factor": config.sasl_kerberos_ticket_renew_window_factor,
    }
    for name, value in given.items():
        if value != config.declared[name].default:
            log.warning("%s=%s has no effect: a broker with a keytab needs no tickets", name, value)
