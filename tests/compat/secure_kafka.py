"""Apache Kafka with logins by password and with ACLs."""

from __future__ import annotations

from collections.abc import Mapping


def secure_settings(users: Mapping[str, str]) -> tuple[str, ...]:
    """Return the settings for users with these passwords. The user "admin" may do everything."""
    return (
        "listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
        "inter.broker.listener.name=PLAINTEXT",
        "sasl.enabled.mechanisms=PLAIN",
        "sasl.mechanism.inter.broker.protocol=PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config="
        "org.apache.kafka.common.security.plain.PlainLoginModule required "
        f'username="admin" password="{users["admin"]}" '
        + " ".join(f'user_{name}="{password}"' for name, password in users.items())
        + ";",
        "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users=User:admin;User:ANONYMOUS",
    )
