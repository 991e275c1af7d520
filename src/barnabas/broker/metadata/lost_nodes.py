"""Creates permanent nodes of the store again after a user has deleted them, from the image of a broker.

Examples of these nodes are ``/cluster/id`` and ``/controller_epoch``. Without them, no controller can be
elected, no broker can register and no topic can be created.

This module does not restore topics, settings and users, because a user may have deleted them on purpose.
`barnabas cluster restore` restores them.
"""

from __future__ import annotations

import contextlib

from barnabas.base.text import logger_of
from barnabas.base.types import NO_BROKER
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.image import ClusterImage
from barnabas.broker.metadata.store import Create, MetadataStore, NodeExistsError, Operation, Set, StoreError

log = logger_of(__name__)

#: the nodes that `put_back` creates again
PERMANENT = frozenset(
    (
        *znodes.FOLDERS,
        znodes.CLUSTER_ID,
        znodes.CONTROLLER_EPOCH,
        znodes.BROKER_EPOCHS,
        znodes.FEATURES,
        znodes.PRODUCER_ID_BLOCK,
    )
)
#: the most versions that a restored node gets, because one transaction creates all of them
_MAX_VERSIONS = 10_000
#: states of partitions read at once
_STATES_AT_ONCE = 500


class ClusterGoneError(StoreError):
    """All metadata of the cluster are gone from the store. The text contains a hint."""


async def put_back(store: MetadataStore, image: ClusterImage, *, is_final: bool) -> list[str]:
    """Create the missing nodes of `PERMANENT` again, with at least the value that this broker has seen.

    Args:
        store: store of the nodes.
        image: image of the broker.
        is_final: whether to create a node even if this broker has not seen its value. Other brokers may know
            newer values.

    Returns:
        The paths of missing nodes that are left to other brokers, which may know their values.

    Raises:
        ClusterGoneError: the cluster's id and its topics are missing, because a user has removed the cluster.
        StoreError: the store cannot be read or written.
    """
    paths = sorted(PERMANENT)
    found = await store.read(paths)
    missing = [path for path, node in zip(paths, found, strict=True) if node is None]
    if {znodes.CLUSTER_ID, znodes.TOPICS} <= set(missing):
        raise ClusterGoneError(
            "the metadata of the cluster is missing in its store: stop all brokers, and restore it with "
            "`barnabas cluster restore`"
        )
    left = []
    for path in missing:  # parents come first: the paths are sorted
        operations = await _creation(store, path, image, is_final=is_final)
        if operations is None:
            left.append(path)
        elif operations:
            with contextlib.suppress(NodeExistsError):  # another broker was first
                await store.multi(operations)
                log.warning("%s was missing from the metadata store: the broker has created it again", path)
    return left


async def _creation(
    store: MetadataStore, path: str, image: ClusterImage, *, is_final: bool
) -> list[Operation] | None:
    """Return the operations that create a lost node again; an empty list if the node need not exist.

    Return None to leave the node to other brokers: this broker does not know the node's value, and they may
    know it. If `is_final` is True, only the node of the cluster's id is left to other brokers. All other
    nodes are then created even if the image does not have their values. For example, the controller epoch is
    taken from the states of partitions in the store.
    """
    if path == znodes.CLUSTER_ID:
        return [Create(path, znodes.encode_cluster_id(image.cluster_id))] if image.cluster_id else None
    if path == znodes.BROKER_EPOCHS:
        return (
            [Create(path, znodes.encode_broker_epochs(image.admitted))]
            if image.admitted or is_final
            else None
        )
    if path == znodes.CONTROLLER_EPOCH:
        if not image.controller_epoch and not is_final:
            return None
        epoch = image.controller_epoch or await _highest_epoch(store, image)
        # A controller that has not seen the deletion must not find the version of its election.
        return _versions(path, znodes.encode_controller_epoch(epoch), image.controller_epoch_version + 1)
    if path == znodes.FEATURES:  # a client takes a lower epoch for older
        features = image.features
        return (
            _versions(path, znodes.encode_features(features.levels), features.epoch)
            if features.levels
            else []
        )
    if path == znodes.PRODUCER_ID_BLOCK:
        last = image.last_producer_id
        return [Create(path, znodes.encode_producer_id_block(NO_BROKER, last, last))] if last >= 0 else []
    return [Create(path)]


def _versions(path: str, data: bytes, version: int) -> list[Operation]:
    """Return operations that create a node, and set its data again until the node has this version.

    For a version above `_MAX_VERSIONS` the node ends at `_MAX_VERSIONS`.
    """
    return [Create(path, data), *[Set(path, data)] * min(version, _MAX_VERSIONS)]


async def _highest_epoch(store: MetadataStore, image: ClusterImage) -> int:
    """Return the highest controller epoch in the store's states of the partitions that `image` has.

    Return 0 if the store has none of these states.
    """
    states = [
        znodes.partition_state(topic.name, number)
        for topic in image.topics.values()
        for number in range(len(topic.partitions))
    ]
    highest = 0
    for start in range(0, len(states), _STATES_AT_ONCE):
        some = states[start : start + _STATES_AT_ONCE]
        for path, node in zip(some, await store.read(some), strict=True):
            if node is not None:
                epoch = znodes.decoded(path, znodes.decode_state_controller_epoch, node.data)
                highest = max(highest, epoch)
    return highest
