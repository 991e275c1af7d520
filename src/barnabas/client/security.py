"""TLS and SASL for connections of `barnabas.client.connection`."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.client.connection import BrokerConnection
from barnabas.client.errors import AuthenticationError, error_code
from barnabas.kafka.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.kafka.security.errors import SaslError
from barnabas.kafka.security.sasl_client import ClientExchange


@dataclass(frozen=True)
class Sasl:
    """A SASL mechanism, and the function that begins a login.

    Attributes:
        mechanism: name of the mechanism, such as "SCRAM-SHA-512".
        begin: returns a generator of the client's messages, which receives the broker's answer to each.
    """

    mechanism: str
    begin: Callable[[], ClientExchange]


@dataclass(frozen=True)
class ConnectionSecurity:
    """The security of a connection: TLS if there is a context, and SASL if there is a mechanism."""

    tls: ssl.SSLContext | None = None
    sasl: Sasl | None = None

    def wrap(self, plain: socket.socket, host: str) -> socket.socket:
        """Return the socket to use for the connected socket `plain`, encrypted if TLS is on.

        `host` is the broker's name, which TLS compares with the certificate unless that check is off.
        Raises OSError if the handshake fails.
        """
        return plain if self.tls is None else self.tls.wrap_socket(plain, server_hostname=host)

    def authenticate(self, connection: BrokerConnection) -> None:
        """Log in (KIP-152). Do nothing if there is no SASL mechanism.

        Raises:
            AuthenticationError: the broker does not support the mechanism, or rejects the credentials.
            ClientError: the broker does not answer.
        """
        if self.sasl is None:
            return
        offer = connection.ask(SaslHandshakeRequest(mechanism=self.sasl.mechanism))
        if offer.error_code:
            raise AuthenticationError(
                f"the broker at {connection.address} does not offer {self.sasl.mechanism}: "
                f"it has {', '.join(offer.mechanisms) or 'none'}"
            )
        exchange = self.sasl.begin()
        message = next(exchange)
        while True:
            answer = connection.ask(SaslAuthenticateRequest(auth_bytes=message))
            if answer.error_code:
                reason = answer.error_message or error_code(answer.error_code).doc
                raise AuthenticationError(
                    f"the broker at {connection.address} rejects the login by {self.sasl.mechanism}: {reason}"
                )
            try:
                message = exchange.send(answer.auth_bytes)
            except StopIteration:
                return
            except SaslError as error:
                raise AuthenticationError(
                    f"{self.sasl.mechanism} with the broker at {connection.address} failed: {error}"
                ) from error
