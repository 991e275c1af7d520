"""Claims a log directory for a broker, in the file `meta.properties`.

    version=1
    cluster.id=...                  the cluster that owns the directory
    node.id=...                     the broker that owns the directory
    directory.id=...                the id of the directory
    metadata.store=zookeeper        exists if the broker is in a cluster
    barnabas.log.dirs=...           ids of all log directories of the broker (`missing_directories`)

The last property is empty until a start has loaded the directory, and absent if it is the only one.
"""

from __future__ import annotations

import logging
from random import Random
from typing import NamedTuple

from barnabas.base.environment.filesystem import FileSystem, replace_file
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.errors import ConfigError
from barnabas.base.types import topic_id_to_str
from barnabas.broker.logs.partition_folders import has_partitions
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.damage import read_small_file

logger = logging.getLogger(__name__)


class DirectoryIds(NamedTuple):
    """The id of a log directory, and the ids of all log directories of its broker, with its own.

    `known` is empty if no start has loaded the directory.
    """

    own: str
    known: frozenset[str]


def claim(
    fs: FileSystem, path: str, cluster_id: str, node_id: int, random: Random, *, is_clustered: bool
) -> DirectoryIds:
    """Check that the directory `path` belongs to this broker. If it belongs to none, claim it.

    If `is_clustered` is True, also write to `meta.properties` that the broker is in a cluster. If the
    directory has no id, `random` chooses one.

    Raises:
        ConfigError: the directory belongs to another broker or cluster, or `meta.properties` is damaged.
        OSError: the disk failed.
    """
    file = f"{path}/{checkpoints.META_PROPERTIES}"
    try:
        found = checkpoints.decode_properties(read_small_file(fs, file))
        if found.get("version") not in ("0", "1") or "cluster.id" not in found:
            raise ValueError("it does not name the cluster")
    except FileNotFoundError:
        found = {}
        if has_partitions(fs, path):
            logger.warning("%s is missing although there are partitions: it is rewritten", file)
        else:
            found[checkpoints.LOG_DIRS] = ""
    except ValueError as error:
        raise ConfigError(
            f"{file} is damaged ({error}): put it back from a backup, or have `barnabas log repair` "
            "rewrite it"
        ) from error
    for name, ours in (("cluster.id", cluster_id), ("node.id", str(node_id))):
        if found.get(name, ours) != ours:
            raise ConfigError(
                f"{path} belongs to {name}={found[name]}, this broker has {name}={ours}: "
                f"change {name} or choose another log.dirs"
            )
    directory_id = found.get("directory.id") or topic_id_to_str(new_uuid(random).bytes)
    mine = {
        "version": "1",
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": directory_id,
    }
    if is_clustered:
        mine[checkpoints.METADATA_STORE] = checkpoints.ZOOKEEPER
    known = found.get(checkpoints.LOG_DIRS)
    if known is not None:
        mine[checkpoints.LOG_DIRS] = known
    if found != mine:
        replace_file(fs, file, checkpoints.encode_properties(mine))
    if known == "":
        return DirectoryIds(directory_id, frozenset())
    return DirectoryIds(directory_id, frozenset((known or directory_id).split(",")))


def store_known(fs: FileSystem, path: str, ids: frozenset[str]) -> None:
    """Store the ids of all log directories of the broker in the directory `path`.

    Raises:
        OSError: the disk failed.
        ValueError: `meta.properties` is damaged.
    """
    file = f"{path}/{checkpoints.META_PROPERTIES}"
    properties = checkpoints.decode_properties(read_small_file(fs, file))
    properties.pop(checkpoints.LOG_DIRS, None)
    if len(ids) > 1:
        properties[checkpoints.LOG_DIRS] = ",".join(sorted(ids))
    replace_file(fs, file, checkpoints.encode_properties(properties))
