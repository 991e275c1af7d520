"""Sets the level of each feature that the cluster uses (KIP-584, KIP-778)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.controller.writes import ControllerWrites
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.features import SUPPORTED, FinalizedFeatures
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.metadata.store import Create, MetadataStore, Set


class UpgradeType(IntEnum):
    """The permitted direction of a change of a feature's level, with Kafka's numbers."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A feature and its new level.

    `upgrade_type` is a number of `UpgradeType`, or an unknown number from a request.
    """

    name: str
    level: int
    upgrade_type: int


class FeatureControl:
    """The part of the controller that sets the level of each feature.

    Args:
        store: metadata store of the cluster.
        writes: writes to the metadata store while this broker is the controller.
    """

    def __init__(self, store: MetadataStore, writes: ControllerWrites) -> None:
        self._store = store
        self._writes = writes

    async def update(self, updates: Sequence[FeatureUpdate], *, validate_only: bool = False) -> None:
        """Set the levels of features, all of them or none. With `validate_only`, only check the updates.

        Raises:
            KafkaError: INVALID_REQUEST, `updates` has a feature twice; INVALID_UPDATE_VERSION, a
                feature, level or upgrade type is not known, a broker does not support a level or is away, or
                the level rises or falls against the upgrade type; NOT_CONTROLLER or KAFKA_STORAGE_ERROR, as
                in `ControllerWrites.write`.
        """
        if len({update.name for update in updates}) < len(updates):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "name each feature once")
        async with self._writes.answering() as image:
            for update in updates:
                _check(update, image.features)
                _check_brokers(update, image)
            if validate_only:
                return
            levels = {**image.features.levels, **{update.name: update.level for update in updates}}
            if levels == image.features.levels:
                return
            node = await self._store.exists(znodes.FEATURES)
            data = znodes.encode_features(levels)
            await self._writes.write(
                [Create(znodes.FEATURES, data) if node is None else Set(znodes.FEATURES, data, node.version)]
            )


def _check(update: FeatureUpdate, finalized: FinalizedFeatures) -> None:
    feature = SUPPORTED.get(update.name)
    if feature is None:
        raise _invalid(f"there is no feature {update.name}, only {', '.join(SUPPORTED)}")
    if not feature.lowest <= update.level <= feature.highest:
        raise _invalid(f"{update.name} has levels {feature.lowest} to {feature.highest}, not {update.level}")
    if update.upgrade_type not in tuple(UpgradeType):
        raise _invalid(f"the upgrade type {update.upgrade_type} of {update.name} is not known")
    level = finalized.level(update.name)
    is_downgrade = update.upgrade_type != UpgradeType.UPGRADE
    if update.level < level and not is_downgrade:
        raise _invalid(
            f"{update.name} is at level {level}: to lower it to level {update.level}, request a downgrade"
        )
    if update.level > level and is_downgrade:
        raise _invalid(f"{update.name} is at level {level}: level {update.level} is not lower")


def _check_brokers(update: FeatureUpdate, image: ClusterImage) -> None:
    """Check that every broker supports the new level of the feature.

    An absent broker that has replicas fails the check, because its version is not known.

    Raises:
        KafkaError: INVALID_UPDATE_VERSION, a broker fails the check.
    """
    for broker_id, broker in sorted(image.brokers.items()):
        lowest, highest = broker.features.get(update.name, (0, 0))
        if not lowest <= update.level <= highest:
            raise _invalid(
                f"broker {broker_id} supports levels {lowest} to {highest} of {update.name}, not level "
                f"{update.level}: upgrade it first"
            )
    holders = {r for topic in image.topics.values() for state in topic.partitions for r in state.replicas}
    away = sorted(holders - image.brokers.keys())
    if away:
        raise _invalid(f"broker {away[0]} is away, its version is not known: start it, or move its replicas")


def _invalid(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_UPDATE_VERSION, message)
