"""UpdateFeatures (key 57): finalize the level of a feature for the whole cluster (KIP-584, KIP-778).

v1 distinguishes safe and unsafe downgrades. It adds the field validate_only, for a request that changes
nothing. v2 returns one error for all features.
"""

from barnabas.kafka.protocol.schema import (
    Bool,
    Int8,
    Int16,
    Int32,
    Request,
    Response,
    String,
    Struct,
    since,
    until,
)


class FeatureUpdateKey(Struct):
    feature: String = ""
    # 0 or less disables the feature.
    max_version_level: Int16 = 0
    allow_downgrade: Bool = until(0, default=False)
    # 1: only upgrades; 2: also safe downgrades; 3: also unsafe downgrades.
    upgrade_type: Int8 = since(1, default=1)


class UpdateFeaturesRequest(Request, key=57, versions=(0, 2), flexible=0):
    timeout_ms: Int32 = 60_000
    feature_updates: list[FeatureUpdateKey] = []
    validate_only: Bool = since(1, default=False)


class UpdatableFeatureResult(Struct):
    feature: String = ""
    error_code: Int16 = 0
    error_message: String | None = ""


class UpdateFeaturesResponse(Response, to=UpdateFeaturesRequest):
    throttle_time_ms: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = ""
    results: list[UpdatableFeatureResult] = until(1, default=[])
