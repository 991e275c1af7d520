"""A broker with an authorizer. A client on the open listener is a super user; on the other listener, users
log in by PLAIN.
"""

from __future__ import annotations

import contextlib
import hashlib
from pathlib import Path

from tests.integration.conftest import Wire

from barnabas.broker.config import BrokerConfig
from barnabas.broker.server.run import BrokerServer
from barnabas.kafka.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from barnabas.kafka.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from barnabas.kafka.protocol.messages.sasl_handshake import SaslHandshakeRequest

_SALT = b"salt for tests"
PASSWORD = "secret"


class AclBroker:
    """A broker in this process, with its metadata in memory."""

    def __init__(self, folder: Path, **settings: str) -> None:
        text = {
            "metadata.store": "memory",
            "log.dirs": str(folder),
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL_PLAINTEXT://127.0.0.1:0",
            "sasl.enabled.mechanisms": "PLAIN",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.num.partitions": "1",
            "group.initial.rebalance.delay.ms": "0",
        }
        self.server = BrokerServer(BrokerConfig.from_text(text | settings))

    def __enter__(self) -> AclBroker:
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    @property
    def open_address(self) -> str:
        """The address of the listener on which every client is a super user."""
        return self.server.bound[0].address

    @property
    def address(self) -> str:
        """The address of the listener on which users log in."""
        return self.server.bound[1].address

    def add(self, *users: str) -> None:
        """Create the users."""
        wire = Wire(self.open_address)
        add_users(wire, *users)
        wire.close()

    def connect(self, user: str) -> Wire:
        """Return a connection on which the user has logged in."""
        return log_in(self.address, user)


def add_users(admin: Wire, *users: str) -> None:
    """Create the users, all with the password `PASSWORD`."""
    salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), _SALT, 4096)
    changes = [
        ScramCredentialUpsertion(name=user, mechanism=1, iterations=4096, salt=_SALT, salted_password=salted)
        for user in users
    ]
    admin(AlterUserScramCredentialsRequest(upsertions=changes))


def login_error(address: str, user: str, password: str = PASSWORD) -> int:
    """Return the error code of the broker's answer to a login by PLAIN."""
    with contextlib.closing(Wire(address)) as wire:
        return _logged_in(wire, user, password).error_code


def log_in(address: str, user: str, password: str = PASSWORD) -> Wire:
    """Return a connection on which the user has logged in by PLAIN."""
    wire = Wire(address)
    answer = _logged_in(wire, user, password)
    if answer.error_code:
        wire.close()
    assert answer.error_code == 0, answer.error_message
    return wire


def _logged_in(wire: Wire, user: str, password: str) -> SaslAuthenticateResponse:
    wire(SaslHandshakeRequest(mechanism="PLAIN"), 1)
    answer: SaslAuthenticateResponse = wire(
        SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()), 2
    )
    return answer
