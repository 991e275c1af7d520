"""Finds out why a client cannot connect or is rejected. Each failed check says how to fix the problem."""

from __future__ import annotations

import contextlib
import socket
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from barnabas.base.environment.clock import SystemClock
from barnabas.base.errors import ErrorCode
from barnabas.base.tls.certificates import Description, describe
from barnabas.client.addresses import Address
from barnabas.client.connection import BrokerConnection, NotKafkaError
from barnabas.client.errors import AuthenticationError, ClientError, UnreachableError, error_code
from barnabas.client.security_settings import security_of
from barnabas.client.servers import Servers, servers_of
from barnabas.kafka.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_TIMEOUT_S = 5.0
#: seconds to wait for the server to reject the client's certificate
_ALERT_S = 1.0
#: a certificate that ends sooner is reported
_SOON = timedelta(days=30)
#: the bit of each operation in the authorised operations of a response (KIP-430)
_OPERATIONS = {"read": 3, "write": 4, "describe": 8}
_UNKNOWN_OPERATIONS = -(2**31)


class Finding(NamedTuple):
    """The result of one check: its subject, whether it has succeeded, and a sentence about it (`words`)."""

    #: the checked item: "TLS of HOST:PORT"
    subject: str
    is_good: bool
    words: str
    #: how to fix the problem, if `is_good` is False
    hint: str = ""


def examine(servers: str, address: Address, topic: str | None = None) -> Iterator[Finding]:
    """Check whether a client with the settings of `servers` can use a broker. Yield the result of each check.

    If a check fails because the broker does not answer, no further check follows.

    Args:
        servers: settings of the client. The addresses in the text are not used.
        address: address of the broker.
        topic: topic that the client wants to use; None checks no topic.
    """
    configured = servers if isinstance(servers, Servers) else Servers(servers)
    patient = _Examined(configured, address)
    for question in (patient.reach, patient.protocol, patient.trust, patient.login):
        found = question()
        if found is not None:
            yield found
            if not found.is_good:
                return
    yield from patient.cluster(topic)


class _Examined:
    """Checks one address with a client's settings. Each check returns its result as a `Finding`."""

    def __init__(self, servers: Servers, address: Address) -> None:
        self._servers = servers
        self._address = address
        protocol = servers.settings.get("security.protocol", "PLAINTEXT").upper()
        self._has_tls = protocol.endswith("SSL")
        self._has_sasl = protocol.startswith("SASL_")
        self._protocol = protocol

    def reach(self) -> Finding:
        """Check that a server listens at the address."""
        subject = f"address {self._address}"
        try:
            socket.getaddrinfo(*self._address, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            return Finding(
                subject,
                False,
                f"the name {self._address.host} does not resolve",
                "look for a slip in the name, or ask your DNS",
            )
        try:
            socket.create_connection(self._address, _TIMEOUT_S).close()
        except OSError as error:
            words = (error.strerror or str(error) or "no answer").lower()
            return Finding(
                subject, False, words, "start the broker, or open the port in the firewall between"
            )
        return Finding(subject, True, "something listens there")

    def protocol(self) -> Finding | None:
        """Check that the server speaks the client's security protocol. The result is never None."""
        subject = f"protocol of {self._address}"
        shown = self._certificate()
        if shown is not None and not self._has_tls:
            wanted = "SASL_SSL" if self._has_sasl else "SASL_SSL, or SSL where there is no login"
            return Finding(
                subject,
                False,
                f"it speaks TLS, and security.protocol is {self._protocol}",
                f"set security.protocol={wanted}",
            )
        if shown is None and self._has_tls:
            plain = "SASL_PLAINTEXT" if self._has_sasl else "PLAINTEXT"
            words = f"it does not speak TLS, and security.protocol is {self._protocol}"
            return Finding(
                subject,
                False,
                words,
                f"set security.protocol={plain}, on a network that you trust",
            )
        return Finding(
            subject, True, "it speaks TLS" if shown else "it does not speak TLS, nor does the client"
        )

    def trust(self) -> Finding | None:
        """Check that the certificate is valid, is for the host of the address, and has a trusted authority.

        Return None if the client does not use TLS.
        """
        if not self._has_tls:
            return None
        shown = self._certificate()
        assert shown is not None
        return _judge(shown, self._address, self._untrusted())

    def login(self) -> Finding | None:
        """Check that the broker accepts the client's login. The result is never None."""
        subject = f"login at {self._address}"
        try:
            with self._connect(self._address) as connection:
                connection.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        except AuthenticationError as error:
            return _refused(subject, str(error), self._servers)
        except ClientError as error:
            if isinstance(error.__cause__, NotKafkaError):
                return Finding(
                    subject,
                    False,
                    f"what listens there is no Kafka broker{error.__cause__.guess}",
                    "look for a slip in the address",
                )
            return self._hung_up(subject, error)
        user = self._servers.settings.get("sasl.username")
        how = (
            f"as {user}"
            if self._has_sasl and user
            else "without a login"
            if not self._has_sasl
            else "by a token"
        )
        return Finding(subject, True, f"the broker serves the client, {how}")

    def cluster(self, topic: str | None) -> Iterator[Finding]:
        """Check every broker's advertised address, and the client's permissions on a topic."""
        wanted = [] if topic is None else [MetadataRequestTopic(name=topic)]
        request = MetadataRequest(
            topics=wanted, allow_auto_topic_creation=False, include_topic_authorized_operations=True
        )
        try:
            with self._connect(self._address) as connection:
                found = connection.ask(request)
        except ClientError as error:
            yield Finding("cluster", False, str(error), "run the command again, and read the broker's log")
            return
        advertised = [Address(broker.host, broker.port) for broker in found.brokers]
        if not advertised:
            yield Finding(
                "cluster", False, "the broker names no brokers", "wait until it has started, or read its log"
            )
        for broker, address in zip(found.brokers, advertised, strict=True):
            yield self._advertised(broker.node_id, address, is_alone=len(advertised) == 1)
        for each in found.topics:
            yield _access(each)

    def _advertised(self, node: int, address: Address, is_alone: bool) -> Finding:
        """Check that the broker `node` answers at its advertised address.

        `is_alone` is true if the cluster has no other broker.
        """
        subject = f"broker {node}"
        hint = "set advertised.listeners of that broker to an address that clients reach"
        try:
            with self._connect(address) as connection:
                connection.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
        except ClientError as error:
            words, cause = str(error), error.__cause__
            if "certificate" in words or "Hostname" in words:
                hint += ", or have its certificate name this one"
            elif isinstance(error, UnreachableError) or isinstance(cause, TimeoutError):
                words = (getattr(cause, "strerror", None) or "no answer").lower()
                hint = hint if is_alone else f"start the broker if it is down; if it runs, {hint}"
            return Finding(subject, False, f"clients are sent to {address}: {words}", hint)
        return Finding(subject, True, f"clients are sent to {address}, which answers")

    def _hung_up(self, subject: str, error: ClientError) -> Finding:
        if self._has_tls and (alert := self._alert()):
            hint = "set ssl.keystore.location to a certificate that the broker trusts"
            return Finding(
                subject, False, f"the broker wants another certificate of the client ({alert})", hint
            )
        if not self._has_sasl:
            wanted = "SASL_SSL" if self._has_tls else "SASL_PLAINTEXT"
            return Finding(
                subject,
                False,
                "the broker ends the connection: it seems to want a login",
                f"set security.protocol={wanted}, sasl.mechanism and sasl.jaas.config, or give --user NAME",
            )
        return Finding(subject, False, str(error), "read the broker's log")

    def _alert(self) -> str:
        """Return the reason why the server ends the connection after the TLS handshake.

        The reason is empty if the server waits for a request, which means that the handshake succeeded.
        """
        security = self._servers.security
        assert security is not None
        try:
            with (
                socket.create_connection(self._address, _TIMEOUT_S) as plain,
                security.wrap(plain, self._address.host) as secured,
            ):
                secured.settimeout(_ALERT_S)
                secured.recv(1)
                return "it closes the connection behind the handshake"
        except TimeoutError:
            return ""
        except ssl.SSLError as error:
            return error.reason or str(error)
        except OSError as error:
            return str(error)

    def _connect(self, address: Address) -> BrokerConnection:
        return BrokerConnection(*address, _TIMEOUT_S, security=self._servers.security)

    def _certificate(self) -> Description | None:
        """Return the server's certificate, trusted or not; None if the server does not use TLS."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        with (
            contextlib.suppress(OSError),
            socket.create_connection(self._address, _TIMEOUT_S) as plain,
            context.wrap_socket(plain, server_hostname=self._address.host) as secured,
        ):
            return describe(secured.getpeercert(binary_form=True) or b"")
        return None

    def _untrusted(self) -> str | None:
        """Return why the server's certificate is not trusted; None if it is trusted.

        The host names in the certificate are not compared. The result is also None if the connection fails
        for another reason.
        """
        settings = servers_of(self._servers, {"ssl.endpoint.identification.algorithm": "none"}).settings
        context = security_of(settings).tls
        assert context is not None
        context.check_hostname = False
        try:
            with socket.create_connection(self._address, _TIMEOUT_S) as plain:
                context.wrap_socket(plain, server_hostname=self._address.host).close()
        except ssl.SSLCertVerificationError as error:
            return error.verify_message or str(error)
        except OSError:
            return None  # another question's matter: the client's certificate, for one
        return None


def _judge(shown: Description, address: Address, untrusted: str | None) -> Finding:
    subject = f"certificate of {address}"
    now = datetime.fromtimestamp(SystemClock().now_ms() / 1000, UTC)
    renew = "give the broker a new one (`barnabas tls renew`, or start it again with --secure)"
    if shown.ends < now:
        return Finding(subject, False, f"it ended on {shown.ends:%Y-%m-%d %H:%M} UTC", renew)
    if shown.begins > now:
        hint = "set the clock of this machine or of the one that made it"
        return Finding(subject, False, f"it begins only on {shown.begins:%Y-%m-%d %H:%M} UTC", hint)
    if untrusted is not None:
        hint = "set ssl.truststore.location to the certificate of the authority that signed it (ca.pem)"
        return Finding(subject, False, f"it is not trusted: {untrusted}", hint)
    if not _names(shown, address.host):
        names = ", ".join(shown.hosts) or "no host at all"
        hint = f"use one of these names, or have the certificate name {address.host}"
        return Finding(subject, False, f"it is for {names}, not for {address.host}", hint)
    ends = f"{shown.ends:%Y-%m-%d}"
    if shown.ends - now < _SOON:
        return Finding(subject, True, f"it is trusted, and ends soon, on {ends}: {renew}")
    return Finding(subject, True, f"it is trusted, for {', '.join(shown.hosts)}, until {ends}")


def _names(shown: Description, host: str) -> bool:
    """Whether a certificate is valid for a host. ``*.example.org`` covers one additional label."""
    wanted = host.lower()
    return any(
        name.lower() == wanted or (name.startswith("*.") and wanted.partition(".")[2] == name[2:].lower())
        for name in shown.hosts
    )


def _refused(subject: str, words: str, servers: Servers) -> Finding:
    if "does not offer" in words:
        return Finding(subject, False, words, "set sasl.mechanism to one that it has")
    if servers.settings.get("sasl.mechanism") == "OAUTHBEARER":
        return Finding(subject, False, words, "look at issuer, audience and time of the token")
    user = servers.settings.get("sasl.username", "")
    hint = f"look for a slip in user or password; `barnabas users add {user}` as an admin sets a new one"
    return Finding(subject, False, words, hint)


def _access(topic: Any) -> Finding:
    subject = f"topic {topic.name}"
    code = error_code(topic.error_code)
    grant = (
        f"as an admin: barnabas acls grant (the user needs DESCRIBE, READ or WRITE on the topic {topic.name})"
    )
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return Finding(subject, False, "an ACL is missing: the user may not even see it", grant)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return Finding(
            subject, False, "there is no such topic, or the user may not see it", f"create it, or {grant}"
        )
    if code is not ErrorCode.NONE:
        return Finding(subject, False, code.doc, "try again, or read the broker's log")
    bits = topic.topic_authorized_operations
    if bits == _UNKNOWN_OPERATIONS:
        return Finding(subject, True, "it is there; the broker does not say what the user may do")
    allowed = [name for name, bit in _OPERATIONS.items() if bits >> bit & 1]
    missing = [name for name in ("read", "write") if name not in allowed]
    words = f"the user may {', '.join(allowed) or 'do nothing'}"
    if len(missing) == 2:
        return Finding(subject, False, words, grant)
    return Finding(subject, True, words + (f", and not {missing[0]}" if missing else ""))
