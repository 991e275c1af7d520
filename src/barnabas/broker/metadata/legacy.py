"""Reads `metadata.db` once: the SQLite file in which earlier versions of Barnabas stored their metadata."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

from barnabas.base.environment.filesystem import FileSystem, exists
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.text import logger_of
from barnabas.broker.metadata.journal import Journal
from barnabas.broker.metadata.store import StoreNode, StoreUnavailableError

log = logger_of(__name__)

FILE_NAME = "metadata.db"
_SUFFIX = ".migrated"
_SCHEMA_VERSION = 1


def read(fs: FileSystem, folders: Sequence[str], random: Random) -> Journal | None:
    """Read the first `metadata.db` in `folders` as a journal. Return None if there is no such file.

    Raises:
        StoreUnavailableError: the file is in use, damaged, or of an unknown version.
    """
    files = (f"{folder}/{FILE_NAME}" for folder in folders)
    found = next((file for file in files if exists(fs, file)), None)
    if found is None or (path := fs.system_path(found)) is None:
        return None
    import sqlite3  # takes its time, and is needed once in a store's life

    connection: sqlite3.Connection | None = None
    try:
        connection = sqlite3.connect(path, timeout=0, isolation_level=None)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        if schema != _SCHEMA_VERSION:
            raise StoreUnavailableError(
                f"{path} is empty or of an unknown format ({schema}): put it back from a backup, or stop the "
                "broker and run `barnabas log repair` with its log.dirs"
            )
        (verdict,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        (transaction,) = connection.execute("SELECT transaction_id FROM state").fetchone()
        rows = connection.execute("SELECT path, data, version, created FROM node")
        nodes = {name: StoreNode(bytes(data), version, created) for name, data, version, created in rows}
    except StoreUnavailableError:
        raise
    except Exception as error:  # SQLite reads what is damaged as anything at all
        if "locked" in str(error):
            raise StoreUnavailableError(f"{path} is in use by another broker: stop it first") from error
        raise StoreUnavailableError(
            f"{path} cannot be opened as a metadata store ({error}): put it back from a backup, or stop the "
            "broker and run `barnabas log repair` with its log.dirs"
        ) from error
    finally:
        if connection is not None:
            connection.close()
    log.info("importing the metadata of an earlier version from %s", path)
    return Journal(new_uuid(random).hex, 0, transaction, nodes)


def put_away(fs: FileSystem, folders: Sequence[str]) -> None:
    """Rename all `metadata.db` files, so that a later start does not import their outdated content."""
    for path in [f"{folder}/{FILE_NAME}{suffix}" for folder in folders for suffix in ("", "-wal", "-shm")]:
        kept = path + _SUFFIX
        try:
            fs.rename(path, kept)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            log.warning("%s cannot be renamed (%s): remove it, the journals replace it", path, error)
        else:
            log.info("renamed %s to %s: the journals replace it", path, kept)
