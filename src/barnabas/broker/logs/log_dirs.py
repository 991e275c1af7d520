"""Checks ``log.dirs`` before the broker opens any file, so that a wrong value causes a clear error."""

from __future__ import annotations

import itertools
from pathlib import PurePath

from barnabas.base.environment.filesystem import FileSystem
from barnabas.base.errors import ConfigError
from barnabas.base.text import quoted
from barnabas.broker.config import BrokerConfig

_MAX_PATH_LENGTH = 1024


def check_paths(config: BrokerConfig, fs: FileSystem) -> None:
    """Check that ``log.dirs`` is a list of separate folders.

    Raises:
        ConfigError: the list is empty, an item is not a path, or an item is named twice or is inside another.
    """
    if not any(config.log_dirs):
        raise ConfigError("log.dirs is empty: name a folder for the data")
    for name in config.log_dirs:
        if not name or "\0" in name or not 0 < _encoded_length(name) <= _MAX_PATH_LENGTH:
            raise ConfigError(f"log.dirs={quoted(name)} is not allowed: write paths of folders")
    real = {name: fs.real_path(name) for name in config.log_dirs}
    for one, other in itertools.permutations(real, 2):
        if real[one] == real[other]:
            raise ConfigError(f"log.dirs names one folder twice: {one} and {other}")
        if PurePath(real[one]) in PurePath(real[other]).parents:
            raise ConfigError(f"log.dirs: {other} lies inside {one}; choose folders beside each other")


def check_folders(config: BrokerConfig, fs: FileSystem) -> None:
    """Check whether the folders of ``log.dirs`` can be used, and create missing ones.

    If some but not all of them cannot be used, the broker starts without these, as Apache Kafka does.

    Raises:
        ConfigError: another broker uses a folder, or no folder can be used.
    """
    problems = []
    for name in config.log_dirs:
        problem = fs.folder_problem(fs.absolute_path(name))
        if problem is None:
            continue
        if problem.in_use:
            raise ConfigError(problem.text)
        problems.append(problem.text)
    if len(problems) == len(config.log_dirs):
        raise ConfigError("; ".join(problems))


def _encoded_length(path: str) -> int:
    """Return the length of `path` in bytes, as the file system encodes it; 0 if it cannot be encoded."""
    try:
        return len(path.encode("utf-8", "surrogateescape"))
    except UnicodeEncodeError:
        return 0
