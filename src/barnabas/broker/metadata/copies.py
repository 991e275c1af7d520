"""Two copies of the embedded store's journal. The store repairs a damaged copy from the other copy.

    FIRST/metadata-1.journal    in the first log directory
    SECOND/metadata-2.journal   in the second one, or beside the first copy when there is only one
    DIR/metadata.lock           held in every log directory while a broker uses the store

A commit is appended and fsynced to the first copy, then to the second. So a crash damages at most one of
them. When the store is opened, it takes the complete copy with the highest generation, and rewrites the other
copy if it differs. If a damaged copy has a higher generation than every complete one, commits are missing,
and the store cannot be opened. If a copy cannot be written, the store logs this and works without the copy
until it can be rewritten. A commit is valid if one copy has it.

A commit whose write failed can still be in a copy, and must not become valid later. So the store never uses
the generation of a failed commit again. If the copies differ when the store is opened, one of them may have
such a commit. So the store then appends a commit without changes, with the next generation.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from random import Random

from barnabas.base.environment.filesystem import (
    File,
    FileSystem,
    Lock,
    make_durable_directory,
    read_file,
    replace_file,
)
from barnabas.base.environment.randomness import new_uuid
from barnabas.base.text import logger_of
from barnabas.broker.metadata.journal import (
    Journal,
    UnknownFormatError,
    decode,
    encode_commit,
    encode_line,
    encode_snapshot,
    furthest_generation,
)
from barnabas.broker.metadata.store import StoreNode, StoreUnavailableError
from barnabas.broker.metadata.tree import Change
from barnabas.broker.storage.harm import hint_of

log = logger_of(__name__)

FILE_NAMES = ("metadata-1.journal", "metadata-2.journal")
LOCK_FILE = "metadata.lock"
_REPAIR = "stop the broker and run `barnabas log repair` with its log.dirs"
#: a file is rewritten when it is larger than this and twice its snapshot
_MIN_BYTES = 256 * 1024


class Found:
    """A copy of the journal as it was found on disk: its content, or the reason why it cannot be used.

    Args:
        fs: file system of the copy.
        path: path of the copy's file.
        like: a copy that was found before, or None. If both copies have the same content, this object uses
            the decoded journal of `like`, because decoding takes long.

    Raises:
        StoreUnavailableError: the copy is from another version of Barnabas.
    """

    def __init__(self, fs: FileSystem, path: str, like: Found | None = None) -> None:
        self.path = path
        self.content = b""
        self.journal: Journal | None = None
        #: the reason why there is no `journal`; None if there is one
        self.problem: str | None = None
        self.is_missing = False
        try:
            self.content = read_file(fs, path)
            if like is not None and like.is_whole and like.content == self.content:
                self.journal = like.journal  # as it should be, and decoding takes long
            else:
                self.journal = decode(self.content)
        except (FileNotFoundError, NotADirectoryError):
            self.is_missing = True
            self.problem = "is missing"
        except OSError as error:
            self.problem = f"cannot be read ({error.strerror or error})"
        except UnknownFormatError as error:
            raise StoreUnavailableError(f"{path} {error}: use the version that wrote it") from error
        except (ValueError, KeyError, TypeError) as error:
            self.problem = f"is damaged: {error}"
        #: the highest generation that can be read, also after damage; -1 if none can be read
        self.reached = self.generation
        if not self.is_whole:
            with contextlib.suppress(ValueError, AttributeError, TypeError):
                self.reached = furthest_generation(self.content)

    @property
    def is_whole(self) -> bool:
        return self.journal is not None and self.journal.damage is None

    @property
    def generation(self) -> int:
        """The last generation before any damage; -1 if not even the snapshot can be read."""
        return -1 if self.journal is None else self.journal.generation

    def described(self) -> str:
        """Return the copy's damage or state in words, to follow its path in a message."""
        if self.journal is not None and self.journal.damage is not None:
            return f"is damaged: {self.journal.damage}"
        return self.problem or f"is whole, at generation {self.generation}"


def find_copies(fs: FileSystem, folders: Sequence[str], usable: Sequence[str] = ()) -> list[Found]:
    """Read the files at all paths in `folders` at which a copy of the journal may be, and return them.

    The first two results are from the paths at which the store keeps its copies now. The other paths can have
    copies from before a change of ``log.dirs``. Missing files are also in the result (`Found.is_missing`).

    Args:
        fs: file system of the folders.
        folders: log directories of the broker, in the order of its ``log.dirs``.
        usable: the folders to which the store can write a copy, in the order of `folders`; empty for all.

    Raises:
        StoreUnavailableError: a copy is from another version of Barnabas.
    """
    homes = _homes(usable or folders)
    elsewhere = [f"{folder}/{name}" for folder in folders for name in FILE_NAMES]
    found: list[Found] = []
    for path in dict.fromkeys([*homes, *elsewhere]):
        found.append(Found(fs, path, like=found[0] if found else None))
    return found


def choose(copies: Sequence[Found]) -> Found | None:
    """Return the copy that has all commits; None if there is no copy.

    Raises:
        StoreUnavailableError: no copy certainly has all commits, or the copies are of different stores.
    """
    present = [copy for copy in copies if not copy.is_missing]
    if not present:
        return None
    stores = {copy.journal.store_id for copy in present if copy.journal is not None}
    if len(stores) > 1:
        raise StoreUnavailableError(
            f"{', '.join(copy.path for copy in present)} belong to different brokers' metadata: "
            "check log.dirs, or move the file away that does not belong here"
        )
    whole = max((copy for copy in present if copy.is_whole), key=lambda copy: copy.generation, default=None)
    furthest = max(copy.reached for copy in present)
    if whole is None or furthest > whole.generation:
        reasons = "; ".join(f"{copy.path} {copy.described()}" for copy in present)
        raise StoreUnavailableError(f"no copy of the metadata is known to be complete ({reasons}): {_REPAIR}")
    return whole


class JournalCopies:
    """The open copies of the journal. All methods block; only the store's own thread should call them.

    `open` returns an object of this class. `journal` is the content that all usable copies have.
    """

    def __init__(
        self, fs: FileSystem, folders: Sequence[str], locks: Sequence[Lock], journal: Journal
    ) -> None:
        self.journal = journal
        self._fs = fs
        self._locks = locks
        self._copies = [_Copy(fs, path) for path in _homes(folders)]

    @classmethod
    def open(
        cls,
        fs: FileSystem,
        folders: Sequence[str],
        random: Random,
        before_new: Callable[[], None] | None = None,
    ) -> JournalCopies:
        """Lock `folders`, open the store in them, and repair a copy that differs. If needed, create a store.

        Args:
            fs: file system of the folders.
            folders: log directories of the broker, in the order of its ``log.dirs``.
            random: makes the id of a new store.
            before_new: called without arguments before the creation of a store, if no folder has a copy. It
                can raise to prevent the creation.

        Raises:
            StoreUnavailableError: another process has the store, the store is damaged beyond repair, or the
                disk fails.
        """
        with contextlib.ExitStack() as on_failure:
            locks = {}
            failures = []
            for folder in folders:
                try:
                    lock = _lock(fs, folder)
                except OSError as error:
                    reason = f"{folder} cannot hold a copy of the metadata: {error.strerror or error}"
                    log.error("%s", reason)
                    failures.append(reason + hint_of(error))
                else:
                    locks[folder] = lock
                    on_failure.callback(lock.release)
            usable = list(locks)
            if not usable:
                raise StoreUnavailableError("; ".join(failures))
            found = find_copies(fs, folders, usable)
            best = choose(found)
            journal = None if best is None else best.journal
            if journal is None:
                if before_new is not None:
                    before_new()
                journal = Journal(new_uuid(random).hex, 0, 0)
            copies = cls(fs, usable, list(locks.values()), journal)
            on_failure.callback(copies._close_files)
            copies._heal(found, best)
            on_failure.pop_all()
        return copies

    def commit(self, changes: Sequence[Change], transaction: int) -> None:
        """Apply changes to `journal`, append them to each copy as one commit, and fsync the copies.

        It is enough if one copy can be written. Each commit tries to write every copy, even after earlier
        failures. A failed commit uses up its generation number: the next commit has a higher one.

        Args:
            changes: the changes of nodes.
            transaction: the number of the store's transaction, which the commit contains.

        Raises:
            StoreUnavailableError: no copy could be written; the store has not changed.
        """
        journal = self.journal
        generation = journal.generation + 1
        commit = encode_commit(generation, transaction, changes)
        nodes = _changed(journal.nodes, changes)
        failures = []
        for copy in self._copies:
            try:
                if not copy.append(commit):
                    copy.rewrite(journal.store_id, generation, transaction, nodes)
            except Exception as error:  # whatever it is: memory must not get ahead of the files
                hint = hint_of(error) if isinstance(error, OSError) else ""
                failures.append(f"{copy.path} cannot be written: {error}{hint}")
                copy.leave_out(error)
        journal.generation = generation
        if len(failures) == len(self._copies):
            _undo(journal.nodes, changes)
            raise StoreUnavailableError("; ".join(failures))
        journal.transaction = transaction

    def close(self) -> None:
        self._close_files()
        for lock in self._locks:
            lock.release()

    def _close_files(self) -> None:
        for copy in self._copies:
            copy.close()

    def _heal(self, found: Sequence[Found], best: Found | None) -> None:
        """Rewrite every copy that differs from the best one, and log the reason.

        If a copy differs, also append a commit without changes, so that all copies have a new generation.
        Rename the copies in `found` that are not at the paths of the open copies.
        """
        at = {copy.path: copy for copy in found}
        are_alike = True
        for home in self._copies:
            copy = at.pop(home.path)
            if best is not None and copy.journal is not None and _is_same(copy.journal, self.journal):
                with contextlib.suppress(OSError):
                    home.open(copy.journal)
                    continue
            are_alike = False
            if best is not None:
                self._explain(copy, best)
        if not are_alike:
            self.commit((), self.journal.transaction)
        for copy in at.values():
            if not copy.is_missing:
                self._put_away(copy)

    def _explain(self, copy: Found, best: Found) -> None:
        behind = best.generation - copy.generation if copy.is_whole else 0
        if behind == 1:
            log.info("%s lacks the last commit, as a crash leaves it: copied from %s", copy.path, best.path)
        elif behind:
            log.warning(
                "%s is %d commits older than %s: it is an old copy, or could not be written; rewritten",
                copy.path,
                behind,
                best.path,
            )
        elif copy.is_whole:
            log.warning(
                "%s contains a commit that was never acknowledged: rewritten from %s", copy.path, best.path
            )
        else:
            log.warning("%s %s; rewritten from %s", copy.path, copy.described(), best.path)

    def _put_away(self, copy: Found) -> None:
        """Rename a copy that the store does not use any more, because ``log.dirs`` has changed.

        After the rename, no later start uses the content of the copy. Ignore a failure of the rename.
        """
        with contextlib.suppress(OSError):
            self._fs.rename(copy.path, copy.path + ".old")
            log.info("%s is kept as %s.old: log.dirs has changed", copy.path, copy.path)


class _Copy:
    """The file of one copy. Commits are appended to it."""

    def __init__(self, fs: FileSystem, path: str) -> None:
        self.path = path
        #: the failure after which the copy is not used; None while the file has every commit
        self.error: Exception | None = None
        self._fs = fs
        self._file: File | None = None
        self._size = 0
        self._snapshot_size = 0
        self._checksum = 0

    def open(self, journal: Journal) -> None:
        """Open the file, which contains `journal`, for appends."""
        self._file = self._fs.open(self.path)
        self._size = journal.size
        self._snapshot_size = journal.snapshot_size
        self._checksum = journal.checksum

    def append(self, commit: bytes) -> bool:
        """Append a commit and fsync it.

        Return False, and write nothing, if the file is too large, or if the copy is left out after a failure.
        The caller must then call `rewrite` with the state after the commit.

        Raises:
            OSError: the disk failed.
        """
        if self._file is None or self._size > max(_MIN_BYTES, 2 * self._snapshot_size):
            return False
        data, checksum = encode_line(commit, self._checksum)
        self._file.write_at([data], self._size)
        self._file.sync()
        self._size += len(data)
        self._checksum = checksum
        return True

    def rewrite(
        self, store_id: str, generation: int, transaction: int, nodes: Mapping[str, StoreNode]
    ) -> None:
        """Replace the file with a snapshot of `nodes`, and open it for appends. Raises OSError if this fails.

        A copy that was left out (`leave_out`) is then in use again.

        Args:
            store_id: id of the store.
            generation: number of the last commit in the snapshot.
            transaction: number of the last transaction in the snapshot.
            nodes: permanent nodes of the store, by path.
        """
        data, checksum = encode_snapshot(store_id, generation, transaction, nodes)
        self.close()
        replace_file(self._fs, self.path, data)
        self._file = self._fs.open(self.path)
        self._size = self._snapshot_size = len(data)
        self._checksum = checksum
        if self.error is not None:
            log.warning("%s can be written again and has been rewritten", self.path)
            self.error = None

    def leave_out(self, error: Exception) -> None:
        """Close the file of the copy after a failed write, and log the failure.

        The content of the file is unknown after the failure. So `append` returns False until `rewrite` has
        replaced the file.
        """
        if self.error is None:
            log.error("the metadata's copy %s cannot be written and is left out: %s", self.path, error)
        self.error = error
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.truncate(self._size)
        self.close()

    def close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def _homes(folders: Sequence[str]) -> list[str]:
    """Return the paths of the store's two copies: in the first and the second of `folders`.

    A single folder gets both copies.
    """
    return [f"{folders[0]}/{FILE_NAMES[0]}", f"{folders[min(1, len(folders) - 1)]}/{FILE_NAMES[1]}"]


def _is_same(journal: Journal, other: Journal) -> bool:
    return (
        journal.damage is None
        and journal.generation == other.generation
        and journal.transaction == other.transaction
        and journal.nodes == other.nodes
    )


def _lock(fs: FileSystem, folder: str) -> Lock:
    """Create and lock a folder for a copy of the journal.

    Raises:
        StoreUnavailableError: another process has the lock.
        OSError: the file system does not allow this.
    """
    try:
        make_durable_directory(fs, folder)
        fs.entries(folder)
        return fs.lock(f"{folder}/{LOCK_FILE}")
    except BlockingIOError as error:
        raise StoreUnavailableError(
            f"the metadata in {folder} is in use by another broker: stop it first"
        ) from error


def _changed(nodes: dict[str, StoreNode], changes: Sequence[Change]) -> dict[str, StoreNode]:
    for change in changes:
        if change.after is None:
            nodes.pop(change.path, None)
        elif not change.after.owner:
            nodes[change.path] = change.after
    return nodes


def _undo(nodes: dict[str, StoreNode], changes: Sequence[Change]) -> None:
    for change in reversed(changes):
        if change.before is not None and not change.before.owner:
            nodes[change.path] = change.before
        elif change.after is not None:
            nodes.pop(change.path, None)
