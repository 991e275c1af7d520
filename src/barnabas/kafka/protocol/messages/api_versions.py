"""ApiVersions (key 18): list the API versions that this broker serves. Clients send it first.

v3 adds the client's name and version (KIP-511) and the features (KIP-584). v4 may list a feature whose
lowest version is 0. The response's header is always version 0. The broker answers an unknown version with
UNSUPPORTED_VERSION in the format of v0, because the client does not know the broker's versions yet.
"""

from barnabas.kafka.protocol.schema import (
    Bool,
    Int16,
    Int32,
    Int64,
    Request,
    Response,
    String,
    Struct,
    since,
    tagged,
)


class ApiVersionsRequest(Request, key=18, versions=(0, 4), flexible=3):
    client_software_name: String = since(3, default="")
    client_software_version: String = since(3, default="")


class ApiVersion(Struct):
    api_key: Int16 = 0
    min_version: Int16 = 0
    max_version: Int16 = 0


class SupportedFeatureKey(Struct):
    name: String = ""
    min_version: Int16 = 0
    max_version: Int16 = 0


class FinalizedFeatureKey(Struct):
    name: String = ""
    max_version_level: Int16 = 0
    min_version_level: Int16 = 0


class ApiVersionsResponse(Response, to=ApiVersionsRequest):
    error_code: Int16 = 0
    api_keys: list[ApiVersion] = []
    throttle_time_ms: Int32 = since(1, default=0)
    supported_features: list[SupportedFeatureKey] = tagged(0, since=3, default=[])
    # -1 unknown; finalized_features counts only when it is 0 or more.
    finalized_features_epoch: Int64 = tagged(1, since=3, default=-1)
    finalized_features: list[FinalizedFeatureKey] = tagged(2, since=3, default=[])
    # Only a KRaft controller sets it.
    zk_migration_ready: Bool = tagged(3, since=3, default=False)
