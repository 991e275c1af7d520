"""Apache Kafka and Barnabas with a listener for each security protocol, without ACLs."""

from __future__ import annotations

from pathlib import Path

from bench.peers import SHARE_GROUP, Barnabas, Kafka, free_port
from tests.certificates import Certificates

#: listeners by security protocol; "MUTUAL" is one with TLS that requires a certificate of the client
PROTOCOLS = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "SSL",
    "MUTUAL": "SSL",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_SSL",
}
PASSWORD = "secret-1"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_LOGIN = "org.apache.kafka.common.security"
_MODULES = {
    "plain": f'{_LOGIN}.plain.PlainLoginModule required user_ann="{PASSWORD}";',
    "scram-sha-256": f"{_LOGIN}.scram.ScramLoginModule required;",
    "scram-sha-512": f"{_LOGIN}.scram.ScramLoginModule required;",
}


class _AllProtocols:
    port: int
    certificates: Certificates

    def addresses(self) -> dict[str, str]:
        """Return the addresses of the listeners by the names in `PROTOCOLS`."""
        return {name: f"127.0.0.1:{self.port + number}" for number, name in enumerate(PROTOCOLS)}

    def common(self) -> tuple[str, ...]:
        return (
            *SHARE_GROUP,
            # a member of a consumer group learns of its partitions by a heartbeat
            "group.consumer.min.heartbeat.interval.ms=500",
            "group.consumer.heartbeat.interval.ms=500",
            "ssl.keystore.type=PEM",
            f"ssl.keystore.location={self.certificates.server}",
            "ssl.truststore.type=PEM",
            f"ssl.truststore.location={self.certificates.authority}",
            "listener.name.mutual.ssl.client.auth=required",
            f"sasl.enabled.mechanisms={','.join(MECHANISMS)}",
        )


class KafkaWithAllProtocols(_AllProtocols, Kafka):
    """Apache Kafka with these listeners.

    Args:
        directory: for the data of the broker.
        certificates: key of the broker, and authority of the clients.
    """

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        super().__init__(directory)
        self.certificates = certificates
        self.port = free_port(len(PROTOCOLS))
        controller = f"127.0.0.1:{free_port()}"
        listeners = ",".join(f"{name}://{address}" for name, address in self.addresses().items())
        kinds = ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items())
        self.settings = (
            *self.common(),
            "broker.session.timeout.ms=60000",  # a busy machine delays heartbeats to the controller
            f"controller.quorum.voters=1@{controller}",
            f"listeners={listeners},CONTROLLER://{controller}",
            f"advertised.listeners={listeners}",
            f"listener.security.protocol.map=CONTROLLER:PLAINTEXT,{kinds}",
            *(
                f"listener.name.{name}.{mechanism}.sasl.jaas.config={line}"
                for name in ("sasl_ssl", "sasl_plaintext")
                for mechanism, line in _MODULES.items()
            ),
        )


class BarnabasWithAllProtocols(_AllProtocols, Barnabas):
    """Barnabas with these listeners. The arguments are those of `KafkaWithAllProtocols`."""

    def __init__(self, directory: Path, certificates: Certificates) -> None:
        super().__init__(directory)
        self.certificates = certificates
        self.port = free_port(len(PROTOCOLS))
        listeners = ",".join(f"{name}://{address}" for name, address in self.addresses().items())
        kinds = ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items())
        self.settings = (
            *self.common(),
            f"listeners={listeners}",
            f"listener.security.protocol.map={kinds}",
            *(
                f"listener.name.{name}.plain.sasl.jaas.config={_MODULES['plain']}"
                for name in ("sasl_ssl", "sasl_plaintext")
            ),
        )

    @property
    def listener(self) -> list[str]:
        return []
