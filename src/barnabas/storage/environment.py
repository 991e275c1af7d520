"""What the logs of one log directory share: the files, the clock, and whether the disk still works."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.clock import Clock
from barnabas.errors import ErrorCode, KafkaError
from barnabas.storage.filesystem import FileSystem
from barnabas.storage.open_files import OpenFiles
from barnabas.types import TopicPartition

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class LogEnvironment:
    """The surroundings of the logs in one log directory; an I/O error takes all of them offline."""

    path: str
    files: OpenFiles
    clock: Clock
    random: random.Random = field(default_factory=random.Random)
    #: the error that took the directory offline
    failure: OSError | None = None
    #: told once, when the directory goes offline
    on_failure: Callable[[OSError], None] | None = None
    #: told before records that may have been flushed are cut off, with the offset where the log will end
    before_truncation: Callable[[TopicPartition, int], None] | None = None

    @property
    def fs(self) -> FileSystem:
        return self.files.fs

    def fail(self, error: OSError) -> KafkaError:
        """Takes the directory offline for good; what to raise to the caller."""
        if self.failure is None:
            self.failure = error
            logger.error("log directory %s is offline: %s", self.path, error)
            if self.on_failure is not None:
                self.on_failure(error)
        return self.offline()

    def offline(self) -> KafkaError:
        """The error for every write once the directory is offline."""
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is offline: {self.failure}"
        )
