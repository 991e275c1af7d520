"""The tree of nodes in memory, with the rules of ZooKeeper.

The memory store and the embedded store use it.
"""

from __future__ import annotations

import re
import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from barnabas.broker.metadata.store import (
    ANY_VERSION,
    BadVersionError,
    Check,
    Create,
    EphemeralParentError,
    Event,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreError,
    StoreNode,
    shared_node,
)

ROOT = "/"
#: parts that are neither empty nor '.' nor '..', each behind a slash
_PATH = re.compile(r"(?:/(?!\.{1,2}(?:/|\Z))[^/\0]+)+", re.DOTALL)
#: operations in each step of `Tree.apply_in_steps`
_OPERATIONS_A_STEP = 500


class Change(NamedTuple):
    """The change of one node. `before` is None for a new node, and `after` is None for a deleted node."""

    path: str
    before: StoreNode | None
    after: StoreNode | None

    @property
    def event(self) -> Event:
        if self.before is None:
            return Event.CREATED
        return Event.DELETED if self.after is None else Event.CHANGED


class Tree:
    """Versioned nodes by path. Transactions change them; the last transaction can be undone."""

    def __init__(self, nodes: Iterable[tuple[str, StoreNode]] = (), transaction: int = 0) -> None:
        self._nodes: dict[str, StoreNode] = {ROOT: StoreNode(b"", 0, 0)}
        #: names in their order; a list, since most nodes with children have one
        self._children: dict[str, list[str]] = {ROOT: []}
        #: the number of the last transaction
        self.transaction = transaction
        for path, node in nodes:
            self._put(path, node)

    def get(self, path: str) -> StoreNode:
        try:
            return self._nodes[path]
        except KeyError:
            raise NoNodeError(f"there is no node {path}") from None

    def find(self, path: str) -> StoreNode | None:
        return self._nodes.get(path)

    def children(self, path: str) -> list[str]:
        self.get(path)
        return list(self._children.get(path, ()))

    def owned_by(self, session: int) -> list[str]:
        """Return the paths of a session's ephemeral nodes."""
        return [path for path, node in self._nodes.items() if node.owner == session]

    def apply(self, operations: Sequence[Operation], session: int) -> tuple[list[int], list[Change]]:
        """Apply a transaction. Return the versions that `MetadataStore.multi` returns, and the changes.

        `session` is the id of the session that becomes the owner of new ephemeral nodes.

        Raises:
            StoreError: an operation is not allowed; the tree has not changed.
            ValueError: a path is invalid; the tree has not changed.
        """
        versions: list[int] = []
        changes: list[Change] = []
        for _ in self.apply_in_steps(operations, session, versions, changes):
            pass
        return versions, changes

    def apply_in_steps(
        self, operations: Sequence[Operation], session: int, versions: list[int], changes: list[Change]
    ) -> Iterator[None]:
        """Apply a transaction, and yield after each few hundred operations.

        Do not read the tree until the generator has ended: it has only a part of the transaction until then.

        Args:
            operations: operations of the transaction.
            session: session that becomes the owner of new ephemeral nodes.
            versions, changes: lists to which the results of `apply` are appended.

        Raises:
            StoreError: an operation is not allowed; the nodes of the tree have not changed.
            ValueError: a path is invalid; the nodes of the tree have not changed.
        """
        self.transaction += 1
        try:
            for number, operation in enumerate(operations, 1):
                if number % _OPERATIONS_A_STEP == 0:
                    yield
                change = self._change(operation, session)
                if isinstance(operation, Check):
                    versions.append(ANY_VERSION)
                    continue
                self._put(change.path, change.after)
                changes.append(change)
                versions.append(ANY_VERSION if change.after is None else change.after.version)
        except (StoreError, ValueError):
            self.undo(changes)
            raise

    def copy(self) -> Tree:
        """Return a separate tree with the same nodes."""
        copy = Tree(transaction=self.transaction)
        copy._nodes = dict(self._nodes)
        copy._children = {path: list(names) for path, names in self._children.items()}
        return copy

    def replay(self, changes: Sequence[Change], transaction: int) -> None:
        """Apply the changes of another tree to this tree, which is a copy of the other tree.

        `transaction` is the number of the last transaction that made these changes.
        """
        self.transaction = transaction
        for change in changes:
            self._put(change.path, change.after)

    def undo(self, changes: Sequence[Change]) -> None:
        """Undo the changes of the last transaction. Its number is not used again."""
        for change in reversed(changes):
            self._put(change.path, change.before)

    def _change(self, operation: Operation, session: int) -> Change:
        path = operation.path
        check_path(path)
        if isinstance(operation, Create):
            return self._creation(operation, session)
        before = self.get(path)
        if operation.version not in (ANY_VERSION, before.version):
            raise BadVersionError(f"{path} has version {before.version}, not {operation.version}")
        if isinstance(operation, Set):
            return Change(path, before, before._replace(data=operation.data, version=before.version + 1))
        if isinstance(operation, Check):
            return Change(path, before, before)
        if self._children.get(path):
            raise NotEmptyError(f"{path} has children")
        return Change(path, before, None)

    def _creation(self, operation: Create, session: int) -> Change:
        path = operation.path
        if path in self._nodes:
            raise NodeExistsError(f"{path} exists")
        if self.get(parent_of(path)).owner:
            raise EphemeralParentError(f"{parent_of(path)} is ephemeral: it can have no children")
        owner = session if operation.ephemeral else 0
        return Change(path, None, shared_node(operation.data, 0, self.transaction, owner))

    def _put(self, path: str, node: StoreNode | None) -> None:
        siblings = self._children.setdefault(parent_of(path), [])
        name = sys.intern(path.rpartition("/")[2])
        index = bisect_left(siblings, name)
        is_there = index < len(siblings) and siblings[index] == name
        if node is None:
            del self._nodes[path]
            self._children.pop(path, None)
            if is_there:
                del siblings[index]
        else:
            self._nodes[path] = node
            if not is_there:
                siblings.insert(index, name)


def parent_of(path: str) -> str:
    """Return the path of the parent."""
    return path.rpartition("/")[0] or ROOT


def check_path(path: str) -> None:
    """Raise ValueError if the text is not a valid path of a node."""
    if _PATH.fullmatch(path) is None:
        raise ValueError(f"{path!r} is not a path: write /a/b, without empty parts, '.' or '..'")
