"""IncrementalAlterConfigs v0-1: sets and deletes settings (KIP-339).

The settings are those of topics, brokers, groups and client-metrics resources. A request can also append to
lists and subtract from them. The controller applies all changes of a resource, or none of them.
"""

from __future__ import annotations

from barnabas.broker.controller import ConfigChange
from barnabas.broker.controller.configs import AlterOperation, ConfigControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import EachConfigResource
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.config_changes import resources_once, results
from barnabas.broker.server.responses.mutations import limit_changes
from barnabas.kafka.protocol.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from barnabas.kafka.security.acls import Operation


@handles(
    IncrementalAlterConfigsRequest,
    needs=[EachConfigResource(Operation.ALTER_CONFIGS, "responses")],
    pieces=[
        Pieces("resources", "responses", size=16, unique=True, check=limit_changes("resources", "configs"))
    ],
    is_heavy=True,
    is_forwarded=True,
    is_audited=True,
)
async def incremental_alter_configs(
    configs: ConfigControl, context: RequestContext, request: IncrementalAlterConfigsRequest
) -> IncrementalAlterConfigsResponse:
    once, errors = resources_once(
        request.resources, lambda config: config.config_operation != AlterOperation.DELETE
    )
    changes = {
        named: [
            ConfigChange(config.name, config.config_operation, config.value) for config in resource.configs
        ]
        for named, resource in once.items()
    }
    errors |= await configs.alter(changes, validate_only=request.validate_only)
    return IncrementalAlterConfigsResponse(
        responses=results(AlterConfigsResourceResponse, request.resources, errors.get)
    )
