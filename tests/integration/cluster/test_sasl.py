"""Brokers that log in to each other over TLS, and have the permissions of brokers."""

from __future__ import annotations

import pytest
from tests.certificates import Certificates

from barnabas.base.errors import ConfigError
from barnabas.testing import BarnabasCluster
from barnabas.testing.running_broker import BrokerSettings

JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="{}";'


class SaslCluster(BarnabasCluster):
    """A cluster with a listener for the brokers, on which they log in as one user."""

    def __init__(self, certificates: Certificates, brokers: int = 3, **settings: str) -> None:
        super().__init__(brokers)
        self._more = {
            "inter.broker.listener.name": "SASL_SSL",
            "ssl.keystore.location": str(certificates.server),
            "ssl.truststore.location": str(certificates.authority),
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            "sasl.jaas.config": JAAS.format("broker", "secret; ü"),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:broker;User:ANONYMOUS",
            **{name.replace("_", "."): value for name, value in settings.items()},
        }

    def _settings_of(self, broker: int) -> BrokerSettings:
        node = super()._settings_of(broker)
        listeners = f"{node.settings['listeners']},SASL_SSL://127.0.0.1:0"
        node.settings.update({"listeners": listeners, **self._more})
        return node


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_records_are_replicated_between_brokers_that_log_in(
    certificates: Certificates, mechanism: str
) -> None:
    settings = {
        "sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "sasl_mechanism_inter_broker_protocol": mechanism,
    }
    with SaslCluster(certificates, **settings) as cluster:
        cluster.create_topic("orders", 3, configs={"min.insync.replicas": "3"})
        cluster.produce("orders", *(str(number) for number in range(300)))
        assert {record.text for record in cluster.consume("orders", 300)} == {str(n) for n in range(300)}
        cluster.wait_in_sync()


def test_logins_that_end_are_made_anew(certificates: Certificates) -> None:
    with SaslCluster(certificates, brokers=2, connections_max_reauth_ms="300") as cluster:
        cluster.create_topic("orders", 2, configs={"min.insync.replicas": "2"})
        for number in range(10):
            cluster.produce("orders", str(number))
        assert len(cluster.consume("orders", 10)) == 10
        cluster.wait_in_sync()


def test_a_broker_that_others_would_refuse_does_not_start(certificates: Certificates) -> None:
    refused = SaslCluster(certificates, brokers=1, super_users="User:ANONYMOUS")
    with pytest.raises(ConfigError, match=r"User:broker to super\.users"), refused:
        pass
