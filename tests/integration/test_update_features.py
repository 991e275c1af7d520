"""UpdateFeatures, and the features in ApiVersions afterwards."""

from __future__ import annotations

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from barnabas.testing import BarnabasBroker

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@pytest.fixture
def broker(tmp_path):
    with BarnabasBroker(data=tmp_path) as broker:
        yield broker


def update(wire, *levels, kind=UPGRADE, validate_only=False, version=2):
    updates = [
        FeatureUpdateKey(
            feature=name,
            max_version_level=level,
            upgrade_type=kind,
            allow_downgrade=version == 0 and kind != UPGRADE,
        )
        for name, level in levels
    ]
    return wire(UpdateFeaturesRequest(feature_updates=updates, validate_only=validate_only), version)


def finalized(wire):
    answer = wire(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 4)
    levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
    return levels, answer.finalized_features_epoch


def test_new_cluster_has_transactions_v2(broker, connect):
    assert finalized(connect(broker))[0]["transaction.version"] == 2


def test_older_clients_are_not_told_of_features_that_begin_at_zero(broker, connect):
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    names = [feature.name for feature in connect(broker)(request, 3).supported_features]
    assert "transaction.version" not in names
    (feature,) = [
        f for f in connect(broker)(request, 4).supported_features if f.name == "transaction.version"
    ]
    assert (feature.min_version, feature.max_version) == (0, 2)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_level_is_changed_for_good(broker, connect, version):
    wire = connect(broker)
    _, before = finalized(wire)
    answer = update(wire, ("transaction.version", 1), kind=SAFE_DOWNGRADE, version=version)
    assert answer.error_code == 0
    assert [result.error_code for result in answer.results] == ([0] if version < 2 else [])
    levels, epoch = finalized(wire)
    assert levels["transaction.version"] == 1 and epoch > before
    broker.restart()
    wire = connect(broker)
    assert finalized(wire) == (levels, epoch)
    assert update(wire, ("transaction.version", 2)).error_code == 0
    assert finalized(wire)[0]["transaction.version"] == 2


def test_feature_at_level_zero_is_not_finalized(broker, connect):
    wire = connect(broker)
    assert update(wire, ("transaction.version", 0), kind=UNSAFE_DOWNGRADE).error_code == 0
    assert "transaction.version" not in finalized(wire)[0]


@pytest.mark.parametrize(
    ("levels", "kind"),
    [
        ([("transaction.version", 3)], UPGRADE),
        ([("transaction.version", -1)], UNSAFE_DOWNGRADE),
        ([("transaction.version", 1)], UPGRADE),
        ([("transaction.version", 1)], 9),
        ([("no.such.feature", 1)], UPGRADE),
        ([("transaction.version", 2), ("no.such.feature", 1)], UPGRADE),
    ],
)
def test_what_cannot_be_is_refused_and_nothing_changes(broker, connect, levels, kind):
    wire = connect(broker)
    before = finalized(wire)
    answer = update(wire, *levels, kind=kind)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert answer.error_message
    assert finalized(wire) == before


def test_request_without_updates_changes_nothing(broker, connect):
    wire = connect(broker)
    before = finalized(wire)
    assert update(wire).error_code == ErrorCode.NONE
    assert finalized(wire) == before


def test_validation_alone_changes_nothing(broker, connect):
    wire = connect(broker)
    before = finalized(wire)
    answer = update(wire, ("transaction.version", 1), kind=SAFE_DOWNGRADE, validate_only=True)
    assert answer.error_code == 0
    assert finalized(wire) == before
