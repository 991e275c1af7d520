"""ApiVersions v0-4: what this broker serves, made from the registry (KIP-35, KIP-511).

No features are finalized yet (KIP-584): transactions and the new group protocol come with theirs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from barnabas.errors import ErrorCode
from barnabas.protocol.messages.api_versions import ApiVersion, ApiVersionsRequest, ApiVersionsResponse
from barnabas.server.context import RequestContext
from barnabas.server.handlers import Api, handles, load

if TYPE_CHECKING:
    from barnabas.server.broker import Broker

#: what a client's name and version may look like (KIP-511); they end up in logs and metrics
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9.-]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest)
def api_versions(broker: Broker, context: RequestContext, request: ApiVersionsRequest) -> ApiVersionsResponse:
    if context.api_version >= 3:
        name, version = request.client_software_name, request.client_software_version
        if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
            return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
        context.connection.client_software_name = name
        context.connection.client_software_version = version
    return ApiVersionsResponse(api_keys=[_range(api) for api in load().values()])


def unsupported_version() -> ApiVersionsResponse:
    """The answer, in v0, to an ApiVersions of a version that is not served: the versions that are."""
    served = _range(load()[ApiVersionsRequest.api_key])
    return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[served])


def _range(api: Api) -> ApiVersion:
    return ApiVersion(api_key=api.key, min_version=api.advertised_from, max_version=api.versions[1])
