"""The limit of changes in one request."""

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.handlers import load
from barnabas.broker.server.responses.mutations import MAX_CHANGES, limit_changes
from barnabas.kafka.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)


def of(resources: int, configs: int) -> AlterConfigsRequest:
    resource = AlterConfigsResource(
        resource_type=2, resource_name="t", configs=[AlterableConfig(name="c", value="v")] * configs
    )
    return AlterConfigsRequest(resources=[resource] * resources)


@pytest.mark.parametrize(
    "resources, configs", [(0, 0), (1, MAX_CHANGES), (MAX_CHANGES, 1), (MAX_CHANGES, 0), (100, 100)]
)
def test_as_many_changes_as_apache_kafka_takes_are_taken(resources, configs):
    limit_changes("resources", "configs")(of(resources, configs))


@pytest.mark.parametrize(
    "resources, configs, what",
    [
        (MAX_CHANGES + 1, 0, "10001 resources"),
        (1, MAX_CHANGES + 1, "10001 configs"),
        (101, 100, "10100 configs"),
    ],
)
def test_more_changes_violate_a_policy_and_are_told_by_their_number(resources, configs, what):
    with pytest.raises(KafkaError, match=f"{what} in one request, 10000 are allowed") as refused:
        limit_changes("resources", "configs")(of(resources, configs))
    assert refused.value.code is ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize(
    "name, array",
    [
        ("AlterClientQuotas", "entries"),
        ("AlterConfigs", "resources"),
        ("CreateAcls", "creations"),
        ("DeleteAcls", "filters"),
        ("IncrementalAlterConfigs", "resources"),
    ],
)
def test_requests_that_change_the_metadata_are_limited(name, array):
    (api,) = (api for api in load().values() if api.name == name)
    (pieces,) = api.pieces
    fields = api.request.__fields__
    item = next(field.type for field in fields if field.name == array)
    request = api.request(**{array: [item()] * (MAX_CHANGES + 1)})
    with pytest.raises(KafkaError, match=f"10001 {array}"):
        pieces.divide(request)
    assert api.on_error(request, KafkaError(ErrorCode.POLICY_VIOLATION, "too many")) is not None
