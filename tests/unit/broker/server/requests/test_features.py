"""The broker serves the APIs of a feature while the cluster uses the feature."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.broker.metadata import ClusterImage, ImageDelta
from barnabas.broker.metadata.features import SHARE_VERSION, FinalizedFeatures
from barnabas.broker.server.handlers import find_coordinator, heartbeat, join_group
from barnabas.broker.server.requests.api import ServedApis

FIRST, OPTIONAL, LAST = find_coordinator.find_coordinator, join_group.join_group, heartbeat.heartbeat
OFF, ON = FinalizedFeatures({SHARE_VERSION: 0}, 1), FinalizedFeatures({SHARE_VERSION: 1}, 2)


@pytest.fixture
def served() -> ServedApis:
    served = ServedApis()
    for api in (FIRST, replace(OPTIONAL, feature=SHARE_VERSION), LAST):
        served[api.key] = api.using()
    return served


def change(before: FinalizedFeatures, after: FinalizedFeatures) -> ImageDelta:
    return ImageDelta(ClusterImage(features=before), ClusterImage(features=after))


def test_an_api_of_an_unused_feature_is_an_unknown_one(served):
    served.use(OFF)
    assert list(served) == [FIRST.key, LAST.key]
    assert served.get(OPTIONAL.key) is None


def test_an_api_comes_and_goes_with_its_feature_and_the_table_keeps_its_order(served):
    all_keys = list(served)
    handlers = dict(served)
    served.use(OFF)
    served.follow(change(OFF, ON))
    assert list(served) == all_keys and served == handlers
    served.follow(change(ON, OFF))
    assert OPTIONAL.key not in served
    served.follow(change(OFF, ON))
    assert served[OPTIONAL.key] is handlers[OPTIONAL.key]


def test_the_level_of_a_feature_without_a_decision_is_its_default(served):
    served.use(FinalizedFeatures())
    assert (OPTIONAL.key in served) == (FinalizedFeatures().level(SHARE_VERSION) > 0)
