"""The results of `log check` for the files of log directories, which `log repair` uses."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path

from barnabas.base.types import JsonObject, TopicId, TopicPartition
from barnabas.kafka.records import BatchHeader


@dataclass(slots=True)
class Finding:
    """The result of the check of one file or partition.

    Attributes:
        path: the path of the file, or of the partition's folder.
        state: ``whole``, ``damaged``, ``missing``, or ``unknown`` for a file that does not belong there.
        detail: one line about the content or the damage.
    """

    path: str
    state: str
    detail: str
    #: the first and the last lost offset; None if no offset is lost
    lost: tuple[int, int] | None = None

    @property
    def is_damage(self) -> bool:
        return self.state != "whole"

    def text(self) -> str:
        return f"{self.state:8} {self.path}: {self.detail}"

    def fields(self) -> JsonObject:
        values = asdict(self)
        lost = values.pop("lost")
        return values | {"lost_from": lost[0], "lost_to": lost[1]} if lost else values


@dataclass(slots=True)
class Segment:
    """A segment's file: its undamaged batches, and its ranges of damaged bytes.

    Attributes:
        size: size of the file in bytes.
        batches: position and header of each undamaged batch.
        damaged: three numbers for each range of damaged bytes: the position where it begins, the position
            after it, and the offset that was expected where it begins.
        end: offset after the last undamaged batch.
    """

    path: Path
    base_offset: int
    size: int
    batches: list[tuple[int, BatchHeader]] = field(default_factory=list)
    damaged: list[tuple[int, int, int]] = field(default_factory=list)
    end: int = 0


@dataclass(slots=True)
class Partition:
    """One partition's folder, and the findings of its check.

    Attributes:
        safe_end: end offset of the records that are known to have been fsynced.
        topic_id: topic id in partition.metadata; None if that file is missing or damaged.
    """

    path: Path
    topic_partition: TopicPartition
    safe_end: int
    segments: list[Segment]
    findings: list[Finding] = field(default_factory=list)
    topic_id: TopicId | None = None
