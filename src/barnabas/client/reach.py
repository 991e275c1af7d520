"""Checks whether a broker can be reached, and finds the reason if not. librdkafka would retry silently."""

from __future__ import annotations

import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Sequence

from barnabas.base.errors import ProtocolError
from barnabas.client.addresses import Address, parse_servers
from barnabas.client.connection import BrokerConnection, NotKafkaError, Security
from barnabas.client.errors import AuthenticationError, ClientError, unreachable
from barnabas.client.servers import security_for
from barnabas.kafka.protocol.messages.metadata import MetadataRequest

#: Seconds in which a name must resolve and a connection must open.
CONNECT_S = 2.0
#: Seconds that a connected broker has for its answer, because it may be busy.
_ANSWER_S = 3.0


def require_broker(bootstrap_servers: str, timeout: float = CONNECT_S) -> None:
    """Check that a client can work with one of the servers. Return nothing if it can.

    One of the servers must answer a MetadataRequest. Then the client must be able to connect to one of the
    addresses in the response: those that the cluster's brokers advertise. The second check is skipped if the
    response has no broker.

    Args:
        timeout: seconds to connect to the servers, and again to the advertised addresses. The answer of a
            server can take `_ANSWER_S` seconds more.

    Raises:
        AuthenticationError: a broker answers, but it rejects the client, or the client rejects the broker.
        ClientError: no server answers, or none answers at the addresses that the cluster advertises. The text
            has the reason for each address.
    """
    servers = parse_servers(bootstrap_servers)
    found = _try_each(servers, timeout, _brokers, security_for(bootstrap_servers))
    if isinstance(found, list):
        raise unreachable(bootstrap_servers, found)
    entry, advertised = found
    if entry in advertised or not advertised:
        return
    failures = _try_each(advertised, timeout, _connect)
    if isinstance(failures, list):
        reasons = "; ".join(failures)
        raise ClientError(
            f"the broker at {entry} sends its clients to the address that it advertises, where none answers: "
            f"{reasons}. Set advertised.listeners of the broker to an address that this machine reaches"
        )


def explain_silence(bootstrap_servers: str, timeout: float) -> ClientError:
    """Return an error that says why no response came within `timeout` seconds.

    To find the reason, the function connects to the servers again (`require_broker`). The result is an
    AuthenticationError if the login fails. If a broker answers now, the error says this, and that the request
    was not answered.
    """
    try:
        require_broker(bootstrap_servers)
    except ClientError as error:
        return error
    return ClientError(
        f"a broker answers at {bootstrap_servers}, but this request was not answered within {timeout:g} s: "
        "its broker may be down or overloaded; try again, and read its log"
    )


class _Attempt:
    """An attempt to reach the broker at one address, in its own thread.

    TCP must be connected within `timeout` seconds. After that, the broker has `_ANSWER_S` seconds for each
    answer. To notice the moment between the two, this object is the `Security` of its `BrokerConnection`. The
    connection calls `wrap` as soon as TCP is connected.

    Args:
        address: host and port to reach.
        timeout: seconds in which the host name must resolve and TCP must connect.
        security: makes the TLS handshake and logs in; None for a connection without both.

    Attributes:
        resolved: whether the host name was resolved.
        connected: whether TCP is connected.
    """

    def __init__(self, address: Address, timeout: float, security: Security | None) -> None:
        self._security = security
        self.address = address
        self.timeout = timeout
        self.resolved = False
        self.connected = False

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        self.connected = True
        plain.settimeout(_ANSWER_S)
        return plain if self._security is None else self._security.wrap(plain, host)

    def authenticate(self, connection: BrokerConnection) -> None:
        if self._security is not None:
            self._security.authenticate(connection)


_Result = tuple[Address, list[Address]]


def _try_each(
    addresses: Sequence[Address],
    timeout: float,
    probe: Callable[[_Attempt], _Result],
    security: Security | None = None,
) -> _Result | list[str]:
    """Probe all addresses at the same time. Return the result of the first successful probe.

    If no probe succeeds, return a text for each address, with the address and the reason.

    Args:
        timeout: seconds for all probes together. If a probe has a TCP connection by then, the limit is
            `_ANSWER_S` seconds longer.
        probe: called in a thread of its own for each address. It raises an error if it fails.
        security: TLS and login, for the connections of `probe`.

    Raises:
        AuthenticationError: before any probe succeeded, a broker rejected the client, or the client rejected
            a broker.
    """
    outcomes: queue.SimpleQueue[tuple[_Attempt, _Result | str | AuthenticationError]] = queue.SimpleQueue()
    attempts = [_Attempt(address, timeout, security) for address in dict.fromkeys(addresses)]

    def run(attempt: _Attempt) -> None:
        try:
            socket.getaddrinfo(*attempt.address, type=socket.SOCK_STREAM)
            attempt.resolved = True
            outcomes.put((attempt, probe(attempt)))
        except AuthenticationError as error:
            outcomes.put((attempt, error))
        except (ClientError, OSError, UnicodeError) as error:
            outcomes.put((attempt, _reason(error, attempt)))

    for attempt in attempts:  # in threads: nothing else bounds the time that a name takes to resolve
        threading.Thread(target=run, args=(attempt,), daemon=True).start()
    began = time.monotonic()
    failures: dict[_Attempt, str] = {}
    while len(failures) < len(attempts):
        answer_due = any(attempt.connected for attempt in attempts if attempt not in failures)
        left = began + timeout + (_ANSWER_S if answer_due else 0) - time.monotonic()
        if left <= 0:
            break
        try:
            attempt, outcome = outcomes.get(timeout=left)
        except queue.Empty:  # one may have connected meanwhile
            continue
        if isinstance(outcome, AuthenticationError):
            raise outcome
        if not isinstance(outcome, str):
            return outcome
        failures[attempt] = outcome
    return [f"{attempt.address}: {failures.get(attempt) or _silence(attempt)}" for attempt in attempts]


def _brokers(attempt: _Attempt) -> _Result:
    """Send a Metadata request to the attempt's address.

    Return this address, and the addresses that the cluster's brokers advertise in the response.
    """
    with BrokerConnection(*attempt.address, attempt.timeout, security=attempt) as connection:
        answer = connection.ask(MetadataRequest(topics=[], allow_auto_topic_creation=False))
    return attempt.address, [Address(broker.host, broker.port) for broker in answer.brokers]


def _connect(attempt: _Attempt) -> _Result:
    socket.create_connection(attempt.address, attempt.timeout).close()
    return attempt.address, []


def _reason(error: Exception, attempt: _Attempt) -> str:
    cause = error.__cause__ or error
    match cause:
        case socket.gaierror():
            return f"the name {attempt.address.host} does not resolve"
        case UnicodeError():
            return f"{attempt.address.host} is not a host name"
        case TimeoutError():
            return _silence(attempt)
        case NotKafkaError():
            return f"what listens there is not a Kafka broker{cause.guess}"
        case ProtocolError():
            return "its answer is not one of a Kafka broker"
        case ConnectionRefusedError():
            return "connection refused, nothing listens there"
        case ssl.SSLError():
            return f"the TLS handshake fails ({cause.reason}); does it speak TLS? (security.protocol)"
        case ConnectionError() if attempt.connected:
            return "it closes the connection; it is no Kafka broker, or it wants TLS or a login (--config)"
        case OSError() if cause.strerror:
            return cause.strerror.lower()
        case _:
            return str(error)


def _silence(attempt: _Attempt) -> str:
    if attempt.connected:
        return f"it accepts the connection, but does not answer within {_ANSWER_S:g} s"
    if attempt.resolved:
        return f"no connection within {attempt.timeout:g} s"
    return f"the name {attempt.address.host} does not resolve within {attempt.timeout:g} s"
