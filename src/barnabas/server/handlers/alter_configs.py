"""AlterConfigs v0-2: replace all settings of topics or brokers (KIP-133).

Clients should use IncrementalAlterConfigs: a setting that the request does not name is removed.
"""

from __future__ import annotations

from barnabas.controller.configs import ConfigControl
from barnabas.errors import KafkaError
from barnabas.protocol.messages.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from barnabas.security.acls import Operation
from barnabas.server.requests.api import handles
from barnabas.server.requests.context import RequestContext
from barnabas.server.requests.needs import EachConfigResource
from barnabas.server.requests.pieces import Pieces
from barnabas.server.responses.config_changes import resources_once, results
from barnabas.server.responses.mutations import limit_changes


def _failed(request: AlterConfigsRequest, error: KafkaError) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        responses=results(AlterConfigsResourceResponse, request.resources, lambda _: error)
    )


@handles(
    AlterConfigsRequest,
    needs=[EachConfigResource(Operation.ALTER_CONFIGS, "responses")],
    on_error=_failed,
    pieces=[
        Pieces("resources", "responses", size=16, unique=True, check=limit_changes("resources", "configs"))
    ],
    is_heavy=True,
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
