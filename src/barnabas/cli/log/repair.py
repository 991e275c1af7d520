"""Repairs log directories so that a broker can serve the undamaged data. Damaged files are moved away."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from barnabas.base.environment.clock import SystemClock
from barnabas.base.environment.filesystem import replace_file
from barnabas.base.environment.os_filesystem import OsFileSystem
from barnabas.base.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, TopicPartition, topic_id_to_str
from barnabas.broker.metadata import znodes
from barnabas.broker.metadata.backup import BackupError, read_backup
from barnabas.broker.metadata.copies import FILE_NAMES
from barnabas.broker.metadata.folders import embedded_files
from barnabas.broker.metadata.image import PartitionState
from barnabas.broker.metadata.journal import Journal, encode_snapshot
from barnabas.broker.metadata.store import StoreNode
from barnabas.broker.storage import checkpoints
from barnabas.broker.storage.incomplete import FILE_NAME as INCOMPLETE
from barnabas.broker.storage.incomplete import Mark, encode_mark
from barnabas.broker.storage.sealed import FILE_NAME as SEALED
from barnabas.broker.storage.segment import MAX_RELATIVE_OFFSET, file_name
from barnabas.broker.storage.transaction_index import AbortedTransaction
from barnabas.cli.log.check import Directories, topics_of
from barnabas.cli.log.findings import Partition, Segment
from barnabas.cli.log.transactions import INDEX, aborted_by_index, is_index_proven, maybe_aborted
from barnabas.kafka.records.batch import (
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    crc_of,
    placed,
)
from barnabas.kafka.records.control import EndTransaction, encode_end_transaction

_FS = OsFileSystem()
_PRODUCER_ID_BLOCK = 1000
#: added to the last known transaction number of the store, so that brokers' epochs never decrease
_TRANSACTIONS_AHEAD = 1 << 32


class Repair:
    """One repair of a broker's log directories.

    Args:
        found: the findings of the check.
        say: receives one line of text for each step.
        dry_run: report the steps without a change.
    """

    def __init__(self, found: Directories, say: Callable[[str], None], *, dry_run: bool) -> None:
        self._found = found
        self._say = say
        self._dry_run = dry_run
        self._aside = f"damaged.{SystemClock().now_ms()}"
        self._is_changed: set[Path] = set()
        #: partitions that the next start must read and check
        self._unsure: dict[Path, set[TopicPartition]] = {}

    def run(self) -> bool:
        """Repair the directories.

        Return whether anything was changed; with `dry_run`, whether anything would be changed.

        Raises:
            OSError: a file cannot be read, written or moved.
        """
        if self._found.is_clustered:
            self._repair_in_cluster()
            return bool(self._is_changed)
        journal = self._found.journal or self._rebuild_metadata()
        for path in self._found.paths:
            self._repair_small_files(path, journal)
        topics = topics_of(journal)
        for partition in self._found.partitions:
            topic, number = partition.topic_partition
            known = topics.get(topic)
            if known is None or number >= len(known.replicas):
                continue
            self._repair_partition(partition)
            if partition.topic_id != known.topic_id and (partition.segments or partition.safe_end):
                self._write_topic_id(partition, known.topic_id)
        for path, unsure in self._unsure.items():
            self._forget_recovery_points(path, unsure)
        return bool(self._is_changed)

    # --- in a cluster ---

    def _repair_in_cluster(self) -> None:
        """Repair files that the broker of a cluster cannot copy from others and cannot rebuild itself.

        The undamaged part of a damaged replica stays, and the replica is marked as incomplete. The broker
        normally copies it again from the partition's leader. If no other replica is left, an unclean election
        can make the repaired replica the leader.
        """
        paths = self._found.paths
        for name in embedded_files(_FS, [str(path) for path in paths]):
            self._move_aside(Path(name))
        for path in paths:
            for finding in self._found.findings:
                file = Path(finding.path)
                if not finding.is_damage or file.parent != path or file.name in FILE_NAMES:
                    continue
                self._move_aside(file)
                if file.name == checkpoints.META_PROPERTIES and (properties := self._cluster_properties()):
                    self._write(file, checkpoints.encode_properties(properties), "the broker adds the rest")
        for partition in self._found.partitions:
            if not partition.segments:
                if partition.findings and partition.safe_end:
                    self._say(f"{partition.topic_partition}: the broker copies it again from its leader")
                continue
            self._repair_partition(partition)
        for path, unsure in self._unsure.items():
            self._forget_recovery_points(path, unsure)

    def _cluster_properties(self) -> dict[str, str] | None:
        """Return the content for a lost meta.properties, from the other directories or from the backup.

        Return None if neither names the cluster.
        """
        found = {"version": "1", checkpoints.METADATA_STORE: checkpoints.ZOOKEEPER}
        cluster_id, broker = self._identity()
        if cluster_id:
            return found | {"cluster.id": cluster_id, "node.id": str(broker)}
        for path in self._found.paths:
            with suppress(BackupError, OSError):
                return found | {"cluster.id": read_backup(_FS, str(path)).cluster_id}
        return None

    def _mark(self, partition: Partition) -> None:
        lost = ", ".join(f"{each.lost[0]} to {each.lost[1]}" for each in partition.findings if each.lost)
        reason = f"it was repaired, without offsets {lost}" if lost else "it was repaired"
        mark = Mark(reason, topic_id=partition.topic_id or b"")
        self._write(partition.path / INCOMPLETE, encode_mark(mark), "the replica counts as incomplete")

    # --- metadata ---

    def _rebuild_metadata(self) -> Journal:
        """Rebuild the metadata from the latest readable copy and from the partitions' folders.

        Move the old copies away, and write the new metadata to the first two log directories (or twice to
        the only one). Return the new metadata.
        """
        paths = self._found.paths
        readable = [copy for copy in self._found.copies if copy.journal is not None]
        best = max(readable, key=lambda copy: copy.generation, default=None)
        if best is not None and best.journal is not None:
            journal = best.journal
            journal.generation += 1
            journal.transaction += _TRANSACTIONS_AHEAD
            self._say(
                f"metadata: taken from {best.path} up to its damage, at commit {best.generation}. Later "
                "changes are lost: a login, rule or token that they removed is valid again. See `barnabas "
                "users list`, `barnabas acls list` and `barnabas tokens list`"
            )
            begun = self._new_metadata()
            # what every store has, if not even that is left
            journal.nodes = begun.nodes | journal.nodes
            journal.nodes[znodes.PRODUCER_ID_BLOCK] = self._producer_id_block(journal)
            self._raise_epochs(journal)
        else:
            journal = self._new_metadata()
            self._say(
                "metadata: created again, since no copy can be read: without settings, logins, rules and "
                "tokens"
            )
        added = self._add_topics(journal)
        if added:
            self._say(
                f"metadata: topics restored from their folders, without their settings: {', '.join(added)}"
            )
        for copy in self._found.copies:
            self._move_aside(Path(copy.path))
        data, _ = encode_snapshot(journal.store_id, journal.generation, journal.transaction, journal.nodes)
        for home in (paths[0] / FILE_NAMES[0], paths[min(1, len(paths) - 1)] / FILE_NAMES[1]):
            self._write(home, data, f"{len(topics_of(journal))} topics")
        return journal

    def _new_metadata(self) -> Journal:
        cluster_id, _ = self._identity()
        cluster_id = cluster_id or topic_id_to_str(uuid.uuid4().bytes)
        nodes = {folder: StoreNode(b"", 0, 1) for folder in znodes.FOLDERS}
        nodes[znodes.CLUSTER_ID] = StoreNode(znodes.encode_cluster_id(cluster_id), 0, 1)
        nodes[znodes.CONTROLLER_EPOCH] = StoreNode(znodes.encode_controller_epoch(1), 0, 1)
        journal = Journal(uuid.uuid4().hex, 1, _TRANSACTIONS_AHEAD, nodes)
        nodes[znodes.PRODUCER_ID_BLOCK] = self._producer_id_block(journal)
        return journal

    def _producer_id_block(self, journal: Journal) -> StoreNode:
        """Return the metadata's node for a new block of producer ids, as the last block that was allocated.

        The ids in this block are above all producer ids in the batches, and above the last block in
        `journal`.
        """
        last = max((self._last_producer_id(partition) for partition in self._found.partitions), default=-1)
        node = journal.nodes.get(znodes.PRODUCER_ID_BLOCK, StoreNode(b"", 0, 1))
        if node.data:
            block = znodes.decoded(znodes.PRODUCER_ID_BLOCK, znodes.decode_producer_id_block, node.data)
            last = max(last, block[1])
        end = (last // _PRODUCER_ID_BLOCK + 2) * _PRODUCER_ID_BLOCK - 1
        data = znodes.encode_producer_id_block(self._identity()[1], end - _PRODUCER_ID_BLOCK + 1, end)
        return node._replace(data=data)

    def _raise_epochs(self, journal: Journal) -> None:
        """Raise the leader epoch of each partition in `journal` above the leader epochs of its batches.

        The next leader must not use an epoch that an earlier leader has used. A higher epoch stays as it is.
        """
        topics = topics_of(journal)
        for partition in self._found.partitions:
            topic, number = partition.topic_partition
            path = znodes.partition_state(topic, number)
            known = topics.get(topic)
            node = journal.nodes.get(path)
            if known is None or node is None or number >= len(known.replicas):
                continue
            state = znodes.decoded(path, znodes.decode_partition_state, known.replicas[number], node)
            if state.leader_epoch <= (epoch := _last_epoch(partition)):
                raised = PartitionState(state.replicas, state.isr, state.leader, epoch + 1)
                journal.nodes[path] = node._replace(data=znodes.encode_partition_state(raised, 1))

    def _add_topics(self, journal: Journal) -> list[str]:
        known = topics_of(journal)
        folders: dict[str, list[Partition]] = {}
        for partition in self._found.partitions:
            topic = partition.topic_partition.topic
            is_deleted = (
                partition.topic_id is not None and znodes.deleted_topic(partition.topic_id) in journal.nodes
            )
            if topic not in known and not is_deleted and (partition.segments or partition.safe_end):
                folders.setdefault(topic, []).append(partition)
        _, broker = self._identity()
        for topic, partitions in folders.items():
            topic_id = next((p.topic_id for p in partitions if p.topic_id is not None), uuid.uuid4().bytes)
            count = 1 + max(p.topic_partition.partition for p in partitions)
            assignment = znodes.Assignment(topic_id, [(broker,)] * count)
            journal.nodes[znodes.topic(topic)] = StoreNode(znodes.encode_topic(assignment), 0, 1)
            journal.nodes[znodes.partitions(topic)] = StoreNode(b"", 0, 1)
            epochs = {p.topic_partition.partition: _last_epoch(p) for p in partitions}
            for number in range(count):
                state = PartitionState((broker,), (broker,), broker, epochs.get(number, -1) + 1)
                journal.nodes[znodes.partition(topic, number)] = StoreNode(b"", 0, 1)
                data = znodes.encode_partition_state(state, 1)
                journal.nodes[znodes.partition_state(topic, number)] = StoreNode(data, 0, 1)
        return sorted(folders)

    def _identity(self) -> tuple[str, int]:
        """Return the ids of the cluster and the broker from the first undamaged meta.properties.

        If there is none, return "" and 1.
        """
        for path in self._found.paths:
            try:
                found = checkpoints.decode_properties((path / checkpoints.META_PROPERTIES).read_bytes())
                return found["cluster.id"], int(found["node.id"])
            except (OSError, ValueError, KeyError):
                continue
        return "", 1

    @staticmethod
    def _last_producer_id(partition: Partition) -> int:
        return max(
            (header.producer_id for segment in partition.segments for _, header in segment.batches),
            default=-1,
        )

    # --- small files ---

    def _repair_small_files(self, path: Path, journal: Journal) -> None:
        for finding in self._found.findings:
            file = Path(finding.path)
            if not finding.is_damage or file.parent != path or file.name in FILE_NAMES:
                continue
            if file.name == checkpoints.META_PROPERTIES:
                properties = self._properties(journal)
                with suppress(OSError, ValueError):
                    found = checkpoints.decode_properties(file.read_bytes())
                    if found.get("cluster.id") == properties["cluster.id"]:
                        lost = ("version", checkpoints.LOG_DIRS)  # it names a directory that is lost
                        properties |= {name: value for name, value in found.items() if name not in lost}
                self._move_aside(file)
                self._write(file, checkpoints.encode_properties(properties), "as the metadata says")
            else:
                self._move_aside(file)

    def _properties(self, journal: Journal) -> dict[str, str]:
        node = journal.nodes.get(znodes.CLUSTER_ID)
        cluster_id, broker = self._identity()
        if not cluster_id:
            replicas = (
                replica
                for topic in topics_of(journal).values()
                for holders in topic.replicas
                for replica in holders
            )
            broker = next(replicas, 1)
        return {
            "version": "1",
            "cluster.id": (
                znodes.decoded(znodes.CLUSTER_ID, znodes.decode_cluster_id, node.data) if node else cluster_id
            ),
            "node.id": str(broker),
            "directory.id": topic_id_to_str(uuid.uuid4().bytes),
        }

    def _forget_recovery_points(self, path: Path, unsure: set[TopicPartition]) -> None:
        """Set the recovery points of `unsure` partitions to 0: the next start recovers them as after a crash.

        The marker of a clean stop and the stored sizes of segments are moved away.
        """
        file = path / checkpoints.RECOVERY_POINTS
        offsets, tags, _ = checkpoints.decode_offsets(file.read_bytes() if file.is_file() else b"")
        for topic_partition in unsure:
            offsets[topic_partition] = 0
            tags.pop(topic_partition, None)
        content = checkpoints.encode_offsets(offsets, tags)
        self._write(file, content, "the next start reads repaired partitions through")
        sealed = [f"{topic_partition}/{SEALED}" for topic_partition in unsure]
        for name in (checkpoints.CLEAN_SHUTDOWN, checkpoints.SEGMENT_SIZES, *sealed):
            self._move_aside(path / name)

    # --- partitions ---

    def _repair_partition(self, partition: Partition) -> None:
        folder = partition.path
        for finding in partition.findings:
            file = Path(finding.path)
            if finding.is_damage and file != folder and file.suffix != ".log":
                if not file.exists() and file.suffix != INDEX:
                    continue
                self._move_aside(file)
                self._unsure.setdefault(folder.parent, set()).add(partition.topic_partition)
        segments = [segment for segment in partition.segments if segment.batches or not segment.damaged]
        end = segments[-1].end if segments else 0
        is_damaged = any(segment.damaged for segment in partition.segments) or end < partition.safe_end
        for finding in partition.findings:
            is_damaged = is_damaged or (finding.is_damage and finding.path.endswith(".log"))
        if not is_damaged:
            return
        self._unsure.setdefault(folder.parent, set()).add(partition.topic_partition)
        if self._found.is_clustered:
            self._mark(partition)  # first: however far this comes, the replica does not count as complete
        if not folder.is_dir():
            self._move_aside(folder)  # a file in its place
        if not self._dry_run:
            folder.mkdir(exist_ok=True, mode=0o700)
        for finding in partition.findings:
            if finding.lost is not None:
                self._say(
                    f"{partition.topic_partition}: offsets {finding.lost[0]} to {finding.lost[1]} are lost"
                )
        saved = sum(len(segment.batches) for segment in segments)
        self._say(f"{partition.topic_partition}: {saved} batches are whole and kept")
        for index, segment in enumerate(partition.segments):
            following = partition.segments[index + 1 :]
            limit = following[0].base_offset if following else max(segment.end, partition.safe_end)
            if segment.damaged or segment.end < limit:
                self._rewrite(partition, segment, limit)
        for finding in partition.findings:
            if finding.detail == "is not a file":
                self._move_aside(Path(finding.path))
        if not partition.segments and partition.safe_end:
            path = folder / file_name(partition.safe_end, ".log")
            self._write(path, b"", f"the log goes on, empty, at {partition.safe_end}")

    def _rewrite(self, partition: Partition, segment: Segment, limit: int) -> None:
        """Write a segment's undamaged batches to a new file, with empty batches in place of lost offsets.

        Among the lost offsets, an abort marker is written for each transaction of `_aborted_in`. Without it,
        the producer's next marker could commit the transaction's records.

        Args:
            limit: offset at which the next segment begins, or the log ends.
        """
        parts: list[bytes] = []
        has_room = limit - segment.base_offset <= MAX_RELATIVE_OFFSET
        holes = [*_holes(segment), *([(segment.end, limit)] if segment.end < limit and has_room else [])]
        aborted = self._aborted_in(partition, segment, holes)

        def fill(start: int, end: int, leader_epoch: int) -> None:
            for transaction in aborted:
                producer_epoch = _epoch_of(partition, transaction)
                if not start <= transaction.last_offset < end or producer_epoch is None:
                    continue
                if start < transaction.last_offset:
                    parts.append(_filler(start, transaction.last_offset, leader_epoch))
                marker = encode_end_transaction(
                    EndTransaction(commit=False, coordinator_epoch=0),
                    producer_id=transaction.producer_id,
                    producer_epoch=producer_epoch,
                    timestamp=NO_TIMESTAMP,
                )
                parts.extend(map(bytes, placed(marker, transaction.last_offset, leader_epoch)))
                start = transaction.last_offset + 1
            if start < end:
                parts.append(_filler(start, end, leader_epoch))

        damaged = {end: offset for _, end, offset in segment.damaged}
        content = segment.path.read_bytes()
        for position, header in segment.batches:
            if position in damaged and damaged[position] < header.base_offset:
                fill(damaged[position], header.base_offset, header.leader_epoch)
            parts.append(content[position : position + header.size])
        last_epoch = segment.batches[-1][1].leader_epoch if segment.batches else 0
        if segment.end < limit and has_room:
            fill(segment.end, limit, last_epoch)
        for suffix in (".log", ".index", ".timeindex", ".txnindex"):
            self._move_aside(segment.path.with_suffix(suffix))
        self._write(segment.path, b"".join(parts), f"{len(segment.batches)} whole batches")

    def _aborted_in(
        self, partition: Partition, segment: Segment, holes: list[tuple[int, int]]
    ) -> list[AbortedTransaction]:
        """Return the transactions of a segment that count as aborted, sorted by their last offset.

        They are:

        - the transactions in the segment's `.txnindex`;
        - the transactions that may have ended in one of `holes` (see `maybe_aborted`).

        A hole that is wholly below the recovery point adds no transactions if the `.txnindex` agrees with its
        checksum. The index then has all transactions that were aborted below the recovery point.

        Args:
            holes: the ranges of lost offsets in the segment: (first, last + 1).
        """
        aborted = aborted_by_index(segment)
        for start, end in holes:
            if end <= partition.safe_end and is_index_proven(partition, segment):
                continue
            for transaction in maybe_aborted(partition, start, end, aborted):
                self._say(
                    f"{partition.topic_partition}: the transaction of producer {transaction.producer_id} "
                    f"that began at offset {transaction.first_offset} may have ended among what is lost, and "
                    "no index tells how: its records up to there count as aborted"
                )
                aborted.append(transaction)
        return sorted(aborted, key=lambda transaction: transaction.last_offset)

    def _write_topic_id(self, partition: Partition, topic_id: bytes) -> None:
        file = partition.path / checkpoints.PARTITION_METADATA
        self._move_aside(file)
        self._write(file, checkpoints.encode_partition_metadata(topic_id), "as the metadata says")

    # --- files ---

    def _move_aside(self, file: Path) -> None:
        """Move a file into the folder of this repair, in the file's own log directory."""
        if not file.exists() and not file.is_symlink():
            return
        root = next(path for path in self._found.paths if file.is_relative_to(path))
        target = root / self._aside / file.relative_to(root)
        self._is_changed.add(file)
        self._say(f"{file}: moved to {target}")
        if not self._dry_run:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file.rename(target)

    def _write(self, file: Path, content: bytes, what: str) -> None:
        self._is_changed.add(file)
        self._say(f"{file}: written, {what}")
        if not self._dry_run:
            replace_file(_FS, str(file), content)


def _last_epoch(partition: Partition) -> int:
    return max((h.leader_epoch for segment in partition.segments for _, h in segment.batches), default=-1)


def _holes(segment: Segment) -> list[tuple[int, int]]:
    """Return the ranges of offsets that are lost between a segment's undamaged batches: (first, last + 1)."""
    starts = {end: offset for _, end, offset in segment.damaged}
    return [
        (starts[position], header.base_offset)
        for position, header in segment.batches
        if position in starts and starts[position] < header.base_offset
    ]


def _epoch_of(partition: Partition, aborted: AbortedTransaction) -> int | None:
    """Return the producer epoch of an aborted transaction, from its last undamaged batch.

    Return None if all its batches are lost. Then the log has no records that need an abort marker.
    """
    for segment in reversed(partition.segments):
        for _, header in reversed(segment.batches):
            is_inside = aborted.first_offset <= header.base_offset < aborted.last_offset
            if is_inside and header.producer_id == aborted.producer_id:
                return header.producer_epoch
    return None


def _filler(start: int, end: int, leader_epoch: int) -> bytes:
    """Return an empty batch for the offsets from `start` to `end` - 1, as compaction leaves them."""

    def packed(crc: int) -> bytes:
        return HEADER.pack(
            start,
            HEADER_SIZE - LOG_OVERHEAD,
            leader_epoch,
            MAGIC,
            crc,
            0,
            end - start - 1,
            -1,
            -1,
            NO_PRODUCER_ID,
            NO_PRODUCER_EPOCH,
            NO_SEQUENCE,
            0,
        )

    return packed(crc_of(packed(0)))
