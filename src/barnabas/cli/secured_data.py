"""Rejects data that `--secure` has protected, for a command without `--secure`."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import ConfigError

if TYPE_CHECKING:
    from barnabas.broker.config import BrokerConfig

#: files that `--secure` writes: the settings of a cluster's brokers, and the login of the admin
_FILES = ("server.properties", "admin.properties")


def is_of_secured_data(folder: Path) -> bool:
    """Whether `folder`, the folder ``secure`` of some data, was made by `--secure`."""
    return any((folder / name).exists() for name in _FILES)


def refuse_to_open(folders: Iterable[Path], config: BrokerConfig) -> None:
    """Reject data that `--secure` has protected, if `config` has no authorizer.

    Without this check, any client could use the data if the user forgets `--secure`.

    Raises:
        ConfigError: `--secure` has created one of `folders`.
    """
    if config.authorizer_class_name is not None:
        return
    for folder in folders:
        with suppress(OSError, ValueError):  # an impossible path: the broker reports it
            if not is_of_secured_data(folder):
                continue
            raise ConfigError(
                "this data was created with --secure, and without it every client could read and change the "
                "data: start with --secure, or set listeners and authorizer.class.name yourself; to remove "
                f"the protection permanently, move {folder} away"
            )
