"""The common environment of the logs in a log directory: files, clock, and the state of the disk."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from barnabas.base.environment.clock import Clock
from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.base.metrics import Durations
from barnabas.base.types import TopicPartition
from barnabas.broker.storage.harm import Harm, harm_of
from barnabas.broker.storage.open_files import OpenFiles

logger = logging.getLogger(__name__)

#: least seconds between two log lines about refused requests, for each kind of error: clients retry at once
_LOG_EVERY_S = 10


@dataclass(slots=True)
class LogEnvironment:
    """The environment of the logs in one log directory. If the disk fails, all of them go offline."""

    path: str
    files: OpenFiles
    clock: Clock
    random: Random
    #: how long fsyncs of logs took, the wait for a thread included, and how many have failed
    fsyncs: Durations = field(default_factory=Durations)
    failed_fsyncs: int = 0
    #: the error that took the directory offline
    failure: OSError | None = None
    #: called once, when the directory goes offline
    on_failure: Callable[[OSError], None] | None = None
    #: by errno: the monotonic time when such an error was last logged, and how often it has occurred since
    _logged: dict[int | None, tuple[float, int]] = field(default_factory=dict)
    #: called before a truncation removes records that may have been flushed, with the log's new end
    before_truncation: Callable[[TopicPartition, int], None] | None = None

    @property
    def fs(self) -> FileSystem:
        return self.files.fs

    def handle_error(self, what: object, error: OSError) -> KafkaError:
        """Take the directory offline if `error` harms all of it.

        Return the KafkaError for the caller to raise.

        `what` names the log or the operation, for the messages.
        """
        if harm_of(error) is Harm.DIRECTORY:
            return self.fail(error)
        return self.operation_error(what, error)

    def operation_error(self, what: object, error: OSError) -> KafkaError:
        """Return the KafkaError for one failed operation on `what`.

        Log an error, but at most one with the same errno in 10 seconds.
        """
        now = self.clock.monotonic()
        since, more = self._logged.get(error.errno, (-math.inf, 0))
        if now - since >= _LOG_EVERY_S:
            self._logged[error.errno] = (now, 0)
            also = f" (and {more} more like this before)" if more else ""
            logger.warning("%s in %s has failed: %s%s", what, self.path, error, also)
        else:
            self._logged[error.errno] = (since, more + 1)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{what}: {error}")

    def fail(self, error: OSError) -> KafkaError:
        """Take the directory offline until the next start. Return the KafkaError for the caller to raise.

        If the directory is offline already, only return the error.
        """
        if self.failure is None:
            self.failure = error
            logger.error(
                "log directory %s is offline and takes no writes until the next start: %s",
                self.path,
                error,
            )
            if self.on_failure is not None:
                self.on_failure(error)
        return self.offline_error()

    def offline_error(self) -> KafkaError:
        """Return the error for a write to the offline directory."""
        return KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path} is offline: {self.failure}"
        )
