"""All logs of a broker: log directories, checkpoints, deletion, retention, compaction, shared fsyncs."""

from barnabas.broker.logs.directory import DirectoryLocked, LogDirectory

__all__ = ["DirectoryLocked", "LogDirectory"]
