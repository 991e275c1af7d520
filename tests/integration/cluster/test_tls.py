"""Brokers that reach each other by TLS, each with its certificate."""

from __future__ import annotations

from tests.certificates import Certificates

from barnabas.testing import BarnabasCluster
from barnabas.testing.running_broker import BrokerSettings


class TlsCluster(BarnabasCluster):
    """A cluster with a TLS listener for the brokers."""

    def __init__(self, certificates: Certificates) -> None:
        super().__init__(brokers=3)
        self._certificates = certificates

    def _settings_of(self, broker: int) -> BrokerSettings:
        node = super()._settings_of(broker)
        node.settings.update(
            {
                "listeners": f"{node.settings['listeners']},SSL://127.0.0.1:0",
                "inter.broker.listener.name": "SSL",
                "ssl.keystore.location": str(self._certificates.server),
                "ssl.truststore.location": str(self._certificates.authority),
                "ssl.client.auth": "required",
            }
        )
        return node


def test_records_are_replicated_by_tls(certificates: Certificates) -> None:
    with TlsCluster(certificates) as cluster:
        cluster.create_topic("orders", 3, configs={"min.insync.replicas": "3"})
        cluster.produce("orders", *(str(number) for number in range(300)))
        assert {record.text for record in cluster.consume("orders", 300)} == {str(n) for n in range(300)}
        cluster.wait_in_sync()
