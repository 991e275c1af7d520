"""AlterConfigs v0-2: replaces all settings of topics or brokers (KIP-133).

The request removes each setting that it does not name. So clients should use IncrementalAlterConfigs.
"""

from __future__ import annotations

from barnabas.broker.controller.configs import ConfigControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import EachConfigResource
from barnabas.broker.server.requests.pieces import Pieces
from barnabas.broker.server.responses.config_changes import resources_once, results
from barnabas.broker.server.responses.mutations import limit_changes
from barnabas.kafka.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.kafka.security.acls import Operation


@handles(
    AlterConfigsRequest,
    needs=[EachConfigResource(Operation.ALTER_CONFIGS, "responses")],
    pieces=[
        Pieces("resources", "responses", size=16, unique=True, check=limit_changes("resources", "configs"))
    ],
    is_heavy=True,
    is_forwarded=True,
    is_audited=True,
)
async def alter_configs(
    configs: ConfigControl, context: RequestContext, request: AlterConfigsRequest
) -> AlterConfigsResponse:
    once, errors = resources_once(request.resources)
    changes = {
        named: {config.name: config.value for config in resource.configs} for named, resource in once.items()
    }
    errors |= await configs.replace(changes, validate_only=request.validate_only)
    return AlterConfigsResponse(
        responses=results(AlterConfigsResourceResponse, request.resources, errors.get)
    )
