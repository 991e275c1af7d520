"""ListConfigResources, as raw requests and by the client that supports it."""

import pytest
from kafka.admin import KafkaAdminClient

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.kafka.protocol.messages.list_config_resources import ListConfigResourcesRequest

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32


@pytest.fixture
def listed(wire):
    """Return the names of resources by type."""

    def ask(*types, version=1):
        response = wire(ListConfigResourcesRequest(resource_types=list(types)), version)
        assert response.error_code == 0
        found = {}
        for resource in response.config_resources:
            found.setdefault(resource.resource_type, []).append(resource.resource_name)
        return found

    return ask


def configure(wire, kind, name, setting, value, operation=0):
    config = AlterableConfig(name=setting, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (result,) = wire(IncrementalAlterConfigsRequest(resources=[resource])).responses
    assert result.error_code == 0, result.error_message


def test_topics_and_brokers_are_listed_and_groups_that_have_settings(wire, listed, topic, group_id):
    assert group_id not in listed(GROUP).get(GROUP, [])
    configure(wire, GROUP, group_id, "consumer.session.timeout.ms", "50000")
    found = listed()
    assert topic.name in found[TOPIC]
    assert found[BROKER] == ["1"]
    assert group_id in found[GROUP]
    assert found.keys() == {TOPIC, BROKER, GROUP}
    configure(wire, GROUP, group_id, "consumer.session.timeout.ms", None, operation=1)
    assert group_id not in listed(GROUP).get(GROUP, [])


@pytest.mark.parametrize("asked", [[BROKER], [BROKER, BROKER], [BROKER, METRICS, LOGGER]])
def test_only_the_types_that_are_asked_for_are_listed_and_once(listed, topic, asked):
    assert listed(*asked) == {BROKER: ["1"]}


def test_version_0_lists_client_metrics_of_which_there_are_none(listed, topic):
    assert listed(version=0) == {}


@pytest.mark.parametrize("kind", [0, 1, 3, 64, -1])
def test_unknown_type_is_refused(wire, kind):
    response = wire(ListConfigResourcesRequest(resource_types=[TOPIC, kind]))
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert response.config_resources == []


def test_kafka_python_lists_resources(barnabas_broker, topic):
    admin = KafkaAdminClient(bootstrap_servers=barnabas_broker.bootstrap_servers)
    try:
        assert topic.name in admin.list_config_resources(["TOPIC"])["topic"]
        assert admin.list_config_resources(["BROKER"]) == {"broker": ["1"]}
    finally:
        admin.close()
