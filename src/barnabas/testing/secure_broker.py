"""A broker with TLS, logins and ACLs for tests."""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from barnabas.base.settings_file import as_texts
from barnabas.broker.config import BrokerConfig
from barnabas.broker.metadata.bootstrap import credentials
from barnabas.broker.server.run import BrokerServer
from barnabas.client.certificate_folder import CertificateFolder
from barnabas.client.servers import Servers
from barnabas.client.settings import librdkafka_settings
from barnabas.testing.broker import TEST_SETTINGS
from barnabas.testing.cluster import TemporaryCluster

_ADMIN = "admin"
_CLUSTER = ResourceType.BROKER, "kafka-cluster", ResourcePatternType.LITERAL
_HOSTS = ("localhost", "127.0.0.1", "::1")


class SecureBroker(TemporaryCluster):
    """A Barnabas broker in this process whose only listener requires TLS and a login (SASL_SSL).

    Until `grant` allows more, only the user admin has permissions. This object uses the login of admin, so
    that `create_topic`, `produce`, `consume` and similar methods always work.

    Args:
        settings: broker settings with Kafka's names.

    Attributes:
        certificates: the files of a certificate authority, which clients must trust (`authority`). Its
            `issue` creates more certificates.
    """

    certificates: CertificateFolder

    def __init__(self, settings: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._settings = as_texts(settings or {})
        self._data = Path(tempfile.mkdtemp(prefix="barnabas-test-"))
        self._passwords = {_ADMIN: secrets.token_urlsafe(18)}
        self.certificates = CertificateFolder(self._data / "secure")
        self._server: BrokerServer | None = None

    def start(self) -> Self:
        """Start the broker, and wait until it serves."""
        self.certificates.create_authority("tests")
        self.certificates.issue("server", _HOSTS)
        settings = {
            **TEST_SETTINGS,
            "listeners": "SASL_SSL://127.0.0.1:0",
            "log.dirs": str(self._data / "data"),
            "ssl.keystore.location": str(self.certificates.pem("server")),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{_ADMIN}",
            **self._settings,
        }
        users = {_ADMIN: credentials(self._passwords[_ADMIN], secrets.token_bytes(24))}
        self._server = BrokerServer(BrokerConfig.from_text(settings), users=users)
        address = self._server.start().bootstrap_servers
        self._bootstrap_servers = Servers(address, self._login(_ADMIN))
        return self

    def client(self, user: str) -> dict[str, str]:
        """Return settings of librdkafka for a user.

        Creates the user if it is new. A new user has no permissions until `grant`.
        """
        if user not in self._passwords:
            self._passwords[user] = secrets.token_urlsafe(18)
            self.admin().set_password(user, self._passwords[user])
        return {"bootstrap.servers": str(self.bootstrap_servers), **self._login(user)}

    def properties(self, user: str) -> Path:
        """Write a properties file with the settings of `client`, and return its path.

        The file is for Java's clients and tools, and for `--config`.
        """
        self.client(user)
        return self.certificates.write_login(user, self._passwords[user], str(self.bootstrap_servers))

    def grant(
        self,
        user: str,
        *operations: str,
        topic: str | None = None,
        group: str | None = None,
        deny: bool = False,
    ) -> None:
        """Allow a user operations such as "READ" on a topic and on a group, or (without both) on the cluster.

        If `deny` is true, deny the operations instead. A name that ends in * matches every name with that
        prefix.

        Raises:
            ValueError: an operation is not known.
        """
        named = [(ResourceType.TOPIC, topic), (ResourceType.GROUP, group)]
        resources = [_resource(kind, name) for kind, name in named if name is not None]
        permission = AclPermissionType.DENY if deny else AclPermissionType.ALLOW
        bindings = [
            AclBinding(*resource, f"User:{user}", "*", _operation(operation), permission)
            for resource in resources or [_CLUSTER]
            for operation in operations
        ]
        admin = AdminClient(librdkafka_settings(self.bootstrap_servers, {}))
        for future in admin.create_acls(bindings, request_timeout=60.0).values():
            future.result()

    def close(self) -> None:
        """Stop the broker, and remove its data."""
        server, self._server = self._server, None
        try:
            if server is not None:
                server.stop()
        finally:
            shutil.rmtree(self._data, ignore_errors=True)

    def _login(self, user: str) -> dict[str, str]:
        return {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": self._passwords[user],
            "ssl.ca.location": str(self.certificates.authority),
        }


def _resource(kind: ResourceType, name: str) -> tuple[ResourceType, str, ResourcePatternType]:
    if name.endswith("*") and name != "*":
        return kind, name[:-1], ResourcePatternType.PREFIXED
    return kind, name, ResourcePatternType.LITERAL


def _operation(name: str) -> AclOperation:
    try:
        return AclOperation[name.upper()]
    except KeyError:
        known = ", ".join(each.name for each in AclOperation if each.name not in ("UNKNOWN", "ANY"))
        raise ValueError(f"{name} is not an operation: choose from {known}") from None
