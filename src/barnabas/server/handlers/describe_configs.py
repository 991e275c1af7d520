"""DescribeConfigs v1-4: every setting of topics and of this broker, with value, source, synonyms, type and
documentation (KIP-133, KIP-226, KIP-569).

Groups have settings before they exist (KIP-848). Loggers (KIP-412) and client metrics (KIP-714) have none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from barnabas.config import Update
from barnabas.config.describe import Description
from barnabas.controller.configs import ResourceType, check_group_name, unserved
from barnabas.controller.names import check_topic_name
from barnabas.errors import ErrorCode, KafkaError
from barnabas.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas.server.answers.config_listing import (
    all_brokers_settings,
    broker_settings,
    group_settings,
    topic_settings,
)
from barnabas.server.handlers import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.pieces import Pieces

if TYPE_CHECKING:
    from barnabas.server.broker import Broker


def _failed(request: DescribeConfigsRequest, error: KafkaError) -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[_refused(resource, error) for resource in request.resources])


@handles(
    DescribeConfigsRequest,
    on_error=_failed,
    pieces=[Pieces("resources", "results", size=16, unique=True)],
    is_heavy=True,
)
def describe_configs(
    broker: Broker, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    for resource in request.resources:
        try:
            descriptions = _descriptions(broker, resource)
        except KafkaError as error:
            response.results.append(_refused(resource, error))
            continue
        wanted = resource.configuration_keys
        response.results.append(
            DescribeConfigsResult(
                error_message=None,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
                configs=[
                    _config(description, request)
                    for description in descriptions
                    if not wanted or description.setting.name in wanted
                ],
            )
        )
    return response


def _descriptions(broker: Broker, resource: DescribeConfigsResource) -> list[Description]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in broker.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        return topic_settings(broker, name)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return all_brokers_settings(broker)
        if name != str(broker.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {broker.node_id}: ask broker '{name}' for its settings, if it exists",
            )
        return broker_settings(broker)
    if resource.resource_type == ResourceType.GROUP:
        check_group_name(name)
        return group_settings(broker, name)
    raise KafkaError(ErrorCode.INVALID_REQUEST, unserved(resource.resource_type))


def _config(description: Description, request: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    setting = description.setting
    shown = not setting.sensitive
    result = DescribeConfigsResourceResult(
        name=setting.name,
        value=description.text if shown else None,
        read_only=setting.update is Update.READ_ONLY,
        config_source=description.source,
        is_sensitive=setting.sensitive,
        config_type=setting.type,
        documentation=setting.doc if request.include_documentation else None,
    )
    if request.include_synonyms:
        result.synonyms = [
            DescribeConfigsSynonym(name=entry.name, value=entry.text if shown else None, source=entry.source)
            for entry in description.entries
        ]
    return result


def _refused(resource: DescribeConfigsResource, error: KafkaError) -> DescribeConfigsResult:
    return DescribeConfigsResult(
        error_code=error.code,
        error_message=error.message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
