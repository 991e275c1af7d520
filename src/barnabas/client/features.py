"""Requests about the features that a cluster uses, and their levels (KIP-584)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from barnabas import __version__
from barnabas.client.brokers import Brokers, check
from barnabas.client.connection import BrokerConnection
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

_UPGRADE, _SAFE_DOWNGRADE = 1, 2


class Feature(NamedTuple):
    """A feature of a cluster, such as ``share.version``."""

    name: str
    #: the level at which the cluster uses the feature; 0 if it does not use it
    level: int
    #: the levels that the broker that has answered supports
    lowest: int
    highest: int


def list_features(brokers: Brokers) -> list[Feature]:
    """Return the features that the brokers support, sorted by name.

    Raises:
        ClientError: no broker answers.
    """
    asked = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
    answer = brokers.ask_any(asked)
    levels = {each.name: each.max_version_level for each in answer.finalized_features}
    return sorted(
        Feature(each.name, levels.get(each.name, 0), each.min_version, each.max_version)
        for each in answer.supported_features
    )


def update_features(brokers: Brokers, levels: Mapping[str, int], *, is_downgrade: bool) -> None:
    """Set the levels of features for the whole cluster, all of them or none.

    `levels` has the new level of each feature, by name; 0 turns a feature off. `is_downgrade` must be true if
    the new levels are lower than the current levels.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION, a broker does not support a level or is away, or `is_downgrade`
            contradicts the direction of the change.
        ClientError: the controller does not answer.
    """
    kind = _SAFE_DOWNGRADE if is_downgrade else _UPGRADE
    request = UpdateFeaturesRequest(
        feature_updates=[
            FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
            for name, level in levels.items()
        ]
    )

    def update(connection: BrokerConnection) -> None:
        answer = connection.ask(request)
        check(answer.error_code, ", ".join(levels), answer.error_message)
        for each in answer.results:
            check(each.error_code, each.feature, each.error_message)

    brokers.ask_controller(update)
