"""All logs of a broker: log directories, checkpoints, deletion, retention, compaction, group commit."""

from barnabas.logs.directory import DirectoryLocked, LogDirectory

__all__ = ["DirectoryLocked", "LogDirectory"]
