"""UpdateFeatures v0-2: sets the levels of features (KIP-584), all of them or none (KIP-1022)."""

from __future__ import annotations

from barnabas.broker.controller import FeatureUpdate
from barnabas.broker.controller.features import FeatureControl
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import RequestContext
from barnabas.broker.server.requests.needs import Cluster
from barnabas.kafka.protocol.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)
from barnabas.kafka.security.acls import Operation

_UPGRADE_TYPES_FROM = 1
_UPGRADE, _UNSAFE_DOWNGRADE = 1, 3


@handles(UpdateFeaturesRequest, needs=[Cluster(Operation.ALTER)], is_forwarded=True, is_audited=True)
async def update_features(
    features: FeatureControl, context: RequestContext, request: UpdateFeaturesRequest
) -> UpdateFeaturesResponse:
    updates = [
        FeatureUpdate(key.feature, key.max_version_level, _upgrade_type(key, context.api_version))
        for key in request.feature_updates
    ]
    await features.update(updates, validate_only=request.validate_only)
    return UpdateFeaturesResponse(
        error_message=None,
        results=[
            UpdatableFeatureResult(feature=key.feature, error_message=None) for key in request.feature_updates
        ],
    )


def _upgrade_type(key: FeatureUpdateKey, version: int) -> int:
    if version >= _UPGRADE_TYPES_FROM:
        return key.upgrade_type
    return _UNSAFE_DOWNGRADE if key.allow_downgrade else _UPGRADE
