"""DescribeConfigs v1-4: returns the settings of topics and of this broker (KIP-133, KIP-226, KIP-569).

Each setting has its value, source, synonyms, type and documentation. The broker also returns the settings of
groups (KIP-848) and of client-metrics resources (KIP-714), even before they exist. Broker loggers (KIP-412)
have no settings.
"""

from __future__ import annotations

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import Update
from barnabas.broker.config.describe import Description
from barnabas.broker.controller.configs import (
    ResourceType,
    check_client_metrics_name,
    check_group_name,
    unserved,
)
from barnabas.broker.controller.names import check_topic_name
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import EachConfigResource
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.config_listing import SettingDescriptions
from barnabas.broker.server.responses.mutations import limit_changes
from barnabas.broker.view import BrokerView
from barnabas.kafka.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
)
from barnabas.kafka.security.acls import Operation


@handles(
    DescribeConfigsRequest,
    needs=[EachConfigResource(Operation.DESCRIBE_CONFIGS, "results")],
    # An answer is many times as long as its question; the bound is that of changes.
    pieces=[Pieces("resources", "results", size=16, unique=True, check=limit_changes("resources"))],
    is_heavy=True,
    unconfirmed="it tells what the image shows",
)
def describe_configs(
    view: BrokerView, settings: SettingDescriptions, context: RequestContext, request: DescribeConfigsRequest
) -> DescribeConfigsResponse:
    response = DescribeConfigsResponse()
    for resource in request.resources:
        try:
            descriptions = _descriptions(view, settings, resource)
        except KafkaError as error:
            response.results.append(_refused(resource, error))
            continue
        wanted = resource.configuration_keys
        response.results.append(
            DescribeConfigsResult(
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


def _descriptions(
    view: BrokerView, settings: SettingDescriptions, resource: DescribeConfigsResource
) -> list[Description]:
    name = resource.resource_name
    if resource.resource_type == ResourceType.TOPIC:
        check_topic_name(name)
        if name not in view.image.topics:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic '{name}'")
        return settings.of_topic(name)
    if resource.resource_type == ResourceType.BROKER:
        if not name:
            return settings.of_all_brokers()
        if name != str(view.node_id):
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"this is broker {view.node_id}: ask broker '{name}' for its settings, if it exists",
            )
        return settings.of_broker()
    if resource.resource_type == ResourceType.GROUP:
        check_group_name(name)
        return settings.of_group(name)
    if resource.resource_type == ResourceType.CLIENT_METRICS:
        check_client_metrics_name(name)
        return settings.of_client_metrics(name)
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
