"""ZooKeeper requests that kazoo, the ZooKeeper client library, lacks or processes slowly.

A request has its opcode as `type`, and `writes` is true if it changes anything. kazoo's connection calls
`serialize` to send the request, and `deserialize` for the response. The formats are those of ZooKeeper's
``zookeeper.jute``: big-endian integers, and byte strings after their length.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Protocol

from kazoo.exceptions import EXCEPTIONS

from barnabas.broker.metadata.store import ANY_VERSION, Check, Create, Delete, Operation, Set, StoreNode

_INT = struct.Struct("!i")
#: opcode, whether it is the last, error
_MULTI_HEADER = struct.Struct("!iBi")
#: czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid
_STAT = struct.Struct("!qqqqiiiqiiq")
_LAST = _MULTI_HEADER.pack(-1, True, -1)
_ERROR: Final = -1
_OK: Final = 0
#: the error of operations that were not tried, because another one in the transaction has failed
_NOT_TRIED: Final = -2

_CREATE, _DELETE, _SET, _GET, _CHILDREN, _SYNC, _CHECK, _MULTI = 1, 2, 5, 4, 8, 9, 13, 14
_GET_ACL, _SET_ACL = 6, 7
_MULTI_READ = 22  # ZooKeeper 3.6
_ADD_WATCH = 106  # ZooKeeper 3.6
_PERSISTENT_RECURSIVE = 1
_EPHEMERAL = 1
#: the permission to read, in an ACL
_READ = 1

_HEADERS = {
    opcode: _MULTI_HEADER.pack(opcode, False, -1) for opcode in (_CREATE, _DELETE, _SET, _GET, _CHECK)
}


class Request(Protocol):
    """A request to ZooKeeper, with the methods that the connection of the client library kazoo calls.

    Attributes:
        type: the opcode of the request.
        writes: whether the request may have changed something if its response is lost.
    """

    type: int
    writes: bool

    def serialize(self) -> bytes: ...

    def deserialize(self, data: bytes, offset: int) -> Any: ...


class Permission(Protocol):
    """A permission on a ZooKeeper node, such as an ``ACL`` of the client library kazoo.

    Attributes:
        perms: the permitted operations, as a bit mask.
        id: who has the permission: an object with the attributes ``scheme`` and ``id``.
    """

    perms: int
    id: Any


def acl_bytes(permissions: Sequence[Permission]) -> bytes:
    """Encode a node's permissions for `Multi` or `SetAcl`, in ZooKeeper's format.

    The format is the number of permissions, and for each one its bit mask, scheme and id.
    """
    entries = (_INT.pack(each.perms) + _string(each.id.scheme) + _string(each.id.id) for each in permissions)
    return _INT.pack(len(permissions)) + b"".join(entries)


class Multi:
    """A ZooKeeper transaction: the server executes all of its operations or none.

    The client library kazoo sends `serialize()`, and passes the response to `deserialize`. The result has one
    version for each operation: the node's new version for a Create or a Set, and ANY_VERSION for any other
    operation. After a failed transaction, the result is a list with only a FailedOperation. `deserialize`
    does not raise this exception, because kazoo would log it.

    Args:
        operations: the operations, with paths relative to `chroot`.
        chroot: path that is put before each path in `operations`; empty for none.
        acl: called with the path of each new node; returns the node's permissions in ZooKeeper's format
            (`acl_bytes`).
    """

    type = _MULTI
    writes = True

    def __init__(self, operations: Sequence[Operation], chroot: str, acl: Callable[[str], bytes]) -> None:
        parts: list[bytes] = []
        for operation in operations:
            path = _string(_below(chroot, operation.path))
            if isinstance(operation, Create):
                flags = _INT.pack(_EPHEMERAL if operation.ephemeral else 0)
                parts += (_HEADERS[_CREATE], path, _buffer(operation.data), acl(operation.path), flags)
            elif isinstance(operation, Set):
                parts += (_HEADERS[_SET], path, _buffer(operation.data), _INT.pack(operation.version))
            elif isinstance(operation, Delete):
                parts += (_HEADERS[_DELETE], path, _INT.pack(operation.version))
            else:
                assert isinstance(operation, Check)
                parts += (_HEADERS[_CHECK], path, _INT.pack(operation.version))
        parts.append(_LAST)
        self.data = b"".join(parts)

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> list[int] | list[FailedOperation]:
        versions: list[int] = []
        while True:
            opcode, last, _ = _MULTI_HEADER.unpack_from(data, offset)
            offset += _MULTI_HEADER.size
            if last:
                return versions
            version = ANY_VERSION
            if opcode == _CREATE:
                offset += _INT.size + _INT.unpack_from(data, offset)[0]
                version = 0
            elif opcode == _SET:
                version = _STAT.unpack_from(data, offset)[4]
                offset += _STAT.size
            elif opcode == _ERROR:
                error = _INT.unpack_from(data, offset)[0]
                offset += _INT.size
                if error not in (_OK, _NOT_TRIED):
                    return [FailedOperation(EXCEPTIONS[error](), len(versions))]
            versions.append(version)


class FailedOperation(Exception):
    """The failure of a transaction (`Multi`) or of a read of many nodes (`MultiRead`).

    Args:
        error: the error of the failed operation, an exception of the client library kazoo.
        index: position of the first failed operation in the transaction, or of the first failed node in the
            read.
    """

    def __init__(self, error: Exception, index: int) -> None:
        super().__init__(str(error))
        self.error = error
        self.index = index


def failure_in(answer: Any) -> FailedOperation | None:
    """Return the failure in `answer`, a result of `deserialize`; None if the request has succeeded."""
    first = answer[0] if isinstance(answer, list) and answer else None
    return first if isinstance(first, FailedOperation) else None


class MultiRead:
    """A request that reads many nodes.

    `deserialize` returns the nodes in the order of `paths`, with None for a missing node. If the read failed,
    it returns a list with only a FailedOperation.

    Args:
        paths: the paths of the nodes, relative to `chroot`.
        chroot: path that is put before each of `paths`; empty for none.
    """

    type = _MULTI_READ
    writes = False

    def __init__(self, paths: Sequence[str], chroot: str) -> None:
        header = _HEADERS[_GET]
        self.data = b"".join(header + _string(_below(chroot, path)) + b"\0" for path in paths) + _LAST

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> list[StoreNode | None] | list[FailedOperation]:
        nodes: list[StoreNode | None] = []
        while True:
            opcode, last, _ = _MULTI_HEADER.unpack_from(data, offset)
            offset += _MULTI_HEADER.size
            if last:
                return nodes
            if opcode == _GET:
                node, offset = _node(data, offset)
                nodes.append(node)
            else:
                error = _INT.unpack_from(data, offset)[0]
                offset += _INT.size
                if error != NO_NODE:
                    return [FailedOperation(EXCEPTIONS[error](), len(nodes))]
                nodes.append(None)


#: ``KeeperException.Code.NONODE``
NO_NODE: Final = -101


class Get:
    """A request that reads one node."""

    type = _GET
    writes = False

    def __init__(self, path: str, chroot: str) -> None:
        self.data = _string(_below(chroot, path)) + b"\0"

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> StoreNode:
        return _node(data, offset)[0]


class Children:
    """A request that reads the names of a node's children."""

    type = _CHILDREN
    writes = False

    def __init__(self, path: str, chroot: str) -> None:
        self.data = _string(_below(chroot, path)) + b"\0"

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> list[str]:
        (count,) = _INT.unpack_from(data, offset)
        offset += _INT.size
        names = []
        for _ in range(count):
            (length,) = _INT.unpack_from(data, offset)
            offset += _INT.size
            names.append(data[offset : offset + length].decode())
            offset += length
        return names


class GetAcl:
    """A request whose response is whether any client may change a node or its children.

    `path` begins at the root of the ensemble, not at the chroot.
    """

    type = _GET_ACL
    writes = False

    def __init__(self, path: str) -> None:
        self.data = _string(path)

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> bool:
        (count,) = _INT.unpack_from(data, offset)
        offset += _INT.size
        is_open = False
        for _ in range(count):
            (permissions,) = _INT.unpack_from(data, offset)
            scheme, offset = _text(data, offset + _INT.size)
            _, offset = _text(data, offset)
            is_open = is_open or (scheme == "world" and bool(permissions & ~_READ))
        return is_open


class SetAcl:
    """A request that replaces a node's permissions with `acl`, which comes from `acl_bytes`.

    `path` begins at the root of the ensemble, not at the chroot.
    """

    type = _SET_ACL
    writes = True

    def __init__(self, path: str, acl: bytes) -> None:
        self.data = _string(path) + acl + _INT.pack(ANY_VERSION)

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> None:
        return None


class Sync:
    """A request after which this server's reads show all earlier writes of the ensemble."""

    type = _SYNC
    writes = False

    def __init__(self, path: str, chroot: str) -> None:
        self.data = _string(_below(chroot, path))

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> None:
        return None


class AddWatch:
    """A request that watches a node and all nodes below it, until the connection ends."""

    type = _ADD_WATCH
    writes = False

    def __init__(self, path: str, chroot: str) -> None:
        self.data = _string(_below(chroot, path)) + _INT.pack(_PERSISTENT_RECURSIVE)

    def serialize(self) -> bytes:
        return self.data

    def deserialize(self, data: bytes, offset: int) -> None:
        return None


def _below(chroot: str, path: str) -> str:
    return (chroot + path if path != "/" else chroot) if chroot else path


def _text(data: bytes, offset: int) -> tuple[str, int]:
    (length,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    return data[offset : offset + length].decode(), offset + length


def _string(text: str) -> bytes:
    return _buffer(text.encode())


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _node(data: bytes, offset: int) -> tuple[StoreNode, int]:
    (length,) = _INT.unpack_from(data, offset)
    offset += _INT.size
    length = max(length, 0)  # -1 is a node that was made without data
    content = data[offset : offset + length]
    offset += length
    created, _, _, _, version, _, _, owner, _, _, _ = _STAT.unpack_from(data, offset)
    return StoreNode(content, version, created, owner), offset + _STAT.size
