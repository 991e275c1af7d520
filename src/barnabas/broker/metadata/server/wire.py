"""The server's half of ZooKeeper's protocol, with the requests that brokers use.

The formats are those of ``zookeeper.jute``: big-endian integers, and byte strings with their length in front.
The client's half is `barnabas.broker.metadata.zookeeper.requests`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from enum import IntEnum
from typing import NamedTuple

from barnabas.broker.metadata.store import (
    BadVersionError,
    Check,
    Create,
    Delete,
    EphemeralParentError,
    Event,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    Operation,
    Set,
    StoreNode,
    StoreUnavailableError,
)

_INT = struct.Struct("!i")
_HEADER = struct.Struct("!ii")
#: protocol version, last transaction seen, session timeout in ms, session id
_CONNECT = struct.Struct("!iqiq")
#: protocol version, session timeout in ms, session id
_CONNECTED = struct.Struct("!iiq")
#: xid, transaction, error
_REPLY = struct.Struct("!iqi")
#: opcode, whether it is the last, error
_MULTI_HEADER = struct.Struct("!iBi")
#: czxid, mzxid, ctime, mtime, version, cversion, aversion, ephemeralOwner, dataLength, numChildren, pzxid
_STAT = struct.Struct("!qqqqiiiqiiq")
_LAST = _MULTI_HEADER.pack(-1, True, -1)
_PASSWORD_BYTES = 16
_EPHEMERAL = 1
_PERSISTENT_RECURSIVE = 1
#: the xid of events, and the state of a connected session
_EVENT_XID, _CONNECTED_STATE = -1, 3
_EVENTS = {Event.CREATED: 1, Event.DELETED: 2, Event.CHANGED: 3}
_ERROR_RESULT = -1
_NOT_TRIED = -2


class Opcode(IntEnum):
    """The requests that the server supports."""

    CREATE = 1
    DELETE = 2
    GET = 4
    SET = 5
    CHILDREN = 8
    SYNC = 9
    PING = 11
    CHECK = 13
    MULTI = 14
    MULTI_READ = 22
    AUTH = 100
    ADD_WATCH = 106
    CLOSE = -11


class Code(IntEnum):
    """The codes of ``KeeperException.Code`` that the server uses."""

    OK = 0
    SYSTEM_ERROR = -1
    UNIMPLEMENTED = -6
    BAD_ARGUMENTS = -8
    NO_NODE = -101
    BAD_VERSION = -103
    NO_CHILDREN_FOR_EPHEMERALS = -108
    NODE_EXISTS = -110
    NOT_EMPTY = -111


_CODES: dict[type[Exception], Code] = {
    NoNodeError: Code.NO_NODE,
    BadVersionError: Code.BAD_VERSION,
    EphemeralParentError: Code.NO_CHILDREN_FOR_EPHEMERALS,
    NodeExistsError: Code.NODE_EXISTS,
    NotEmptyError: Code.NOT_EMPTY,
    StoreUnavailableError: Code.SYSTEM_ERROR,
    ValueError: Code.BAD_ARGUMENTS,
}


class ProtocolError(ValueError):
    """The bytes are not a request of this protocol, so the connection must be closed."""


class ConnectRequest(NamedTuple):
    """The first request of a connection; `session_id` is 0 for a new session."""

    timeout_ms: int
    session_id: int
    password: bytes
    #: whether the client reads the last byte of the response
    knows_read_only: bool


class Reader:
    """Reads a request from its start. Every method raises ProtocolError if the request is too short."""

    __slots__ = ("_data", "_offset")

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._offset = 0

    def header(self) -> tuple[int, int]:
        """Return the xid and the opcode."""
        xid, opcode = self._unpack(_HEADER)
        return xid, opcode

    def connect(self) -> ConnectRequest:
        _, _, timeout_ms, session_id = self._unpack(_CONNECT)
        password = self._buffer()
        return ConnectRequest(timeout_ms, session_id, password, self._offset < len(self._data))

    def path(self) -> str:
        """Return the next string of the request, which is a path. Raises ProtocolError if it is not UTF-8."""
        try:
            return self._buffer().decode()
        except UnicodeDecodeError as error:
            raise ProtocolError(f"a path is not UTF-8 ({error})") from None

    def watch_mode(self) -> bool:
        """Whether the watch is persistent and recursive, the only supported kind."""
        return self._int() == _PERSISTENT_RECURSIVE

    def operations(self) -> list[Operation]:
        """Return the operations of a transaction. Permissions are ignored, because all clients are brokers.

        Raises:
            ProtocolError: an operation or a kind of node is not supported.
        """
        operations: list[Operation] = []
        while (opcode := self._multi_opcode()) is not None:
            path = self.path()
            if opcode == Opcode.CREATE:
                data = self._buffer()
                for _ in range(self._int()):
                    self._int(), self._buffer(), self._buffer()
                flags = self._int()
                if flags not in (0, _EPHEMERAL):
                    raise ProtocolError(f"a node of the kind {flags} is not known")
                operations.append(Create(path, data, flags == _EPHEMERAL))
            elif opcode == Opcode.SET:
                operations.append(Set(path, self._buffer(), self._int()))
            elif opcode == Opcode.DELETE:
                operations.append(Delete(path, self._int()))
            elif opcode == Opcode.CHECK:
                operations.append(Check(path, self._int()))
            else:
                raise ProtocolError(f"a transaction has the operation {opcode}")
        return operations

    def paths_to_read(self) -> list[str]:
        """Return the paths in a request to read many nodes.

        Raises ProtocolError for any other operation in it.
        """
        paths: list[str] = []
        while (opcode := self._multi_opcode()) is not None:
            if opcode != Opcode.GET:
                raise ProtocolError(f"a read of many nodes has the operation {opcode}")
            paths.append(self.path())
            self._skip(1)  # whether to watch it
        return paths

    def _multi_opcode(self) -> int | None:
        opcode, is_last, _ = self._unpack(_MULTI_HEADER)
        return None if is_last else opcode

    def _int(self) -> int:
        (value,) = self._unpack(_INT)
        return int(value)

    def _buffer(self) -> bytes:
        length = self._int()
        start = self._offset
        self._skip(max(length, 0))  # -1 is null
        return self._data[start : self._offset]

    def _skip(self, length: int) -> None:
        if length > len(self._data) - self._offset:
            raise ProtocolError("a request ends too early")
        self._offset += length

    def _unpack(self, layout: struct.Struct) -> tuple[int, ...]:
        start = self._offset
        self._skip(layout.size)
        return layout.unpack_from(self._data, start)


def code_of(error: Exception) -> Code:
    """Return ZooKeeper's code for an error that the tree has raised; SYSTEM_ERROR if it has no other code."""
    return next((code for kind, code in _CODES.items() if isinstance(error, kind)), Code.SYSTEM_ERROR)


def connected(request: ConnectRequest, timeout_ms: int, session_id: int, password: bytes) -> bytes:
    """Encode the response to a connect request. A timeout of 0 means that the session has ended."""
    read_only = b"\0" if request.knows_read_only else b""
    return _frame(_CONNECTED.pack(0, timeout_ms, session_id), _buffer(password), read_only)


def ended(request: ConnectRequest) -> bytes:
    """Encode the response to a client whose session has ended."""
    return connected(request, 0, 0, bytes(_PASSWORD_BYTES))


def reply(xid: int, transaction: int, body: bytes = b"", code: Code = Code.OK) -> bytes:
    """Encode the response to request `xid`. `transaction` is the number of the tree's last transaction."""
    return _frame(_REPLY.pack(xid, transaction, code), body)


def event(kind: Event, path: str) -> bytes:
    """Encode the event that tells a watcher about a change of the node at `path`."""
    header = _REPLY.pack(_EVENT_XID, -1, Code.OK)
    return _frame(header, _HEADER.pack(_EVENTS[kind], _CONNECTED_STATE), _buffer(path.encode()))


def node_body(node: StoreNode) -> bytes:
    """Encode a node as the body of a response.

    Its stat has only the fields that brokers read; times and counts are 0.
    """
    return _buffer(node.data) + _stat(node, len(node.data))


def names_body(names: Sequence[str]) -> bytes:
    """Encode the names of a node's children as the body of a response."""
    return _INT.pack(len(names)) + b"".join(_buffer(name.encode()) for name in names)


def path_body(path: str) -> bytes:
    """Encode a path as the body of a response."""
    return _buffer(path.encode())


def multi_body(operations: Sequence[Operation], versions: Sequence[int]) -> bytes:
    """Encode the body of the response to a transaction. `versions` are the versions after the operations."""
    parts: list[bytes] = []
    for operation, version in zip(operations, versions, strict=True):
        if isinstance(operation, Create):
            parts += (_result(Opcode.CREATE), _buffer(operation.path.encode()))
        elif isinstance(operation, Set):
            parts += (_result(Opcode.SET), _stat(StoreNode(b"", version, 0), len(operation.data)))
        else:
            parts.append(_result(Opcode.DELETE if isinstance(operation, Delete) else Opcode.CHECK))
    return b"".join((*parts, _LAST))


def failed_multi_body(count: int, failed: int, code: Code) -> bytes:
    """Encode the body of the response to a failed transaction of `count` operations.

    The operation with the index `failed` has failed, with the error `code`.
    """
    codes = [Code.OK] * failed + [code] + [_NOT_TRIED] * (count - failed - 1)
    return b"".join(map(_error_result, codes)) + _LAST


def multi_read_body(nodes: Sequence[StoreNode | None]) -> bytes:
    """Encode the body of the response to a read of many nodes. `nodes` has None for each missing node."""
    missing = _error_result(Code.NO_NODE)
    got = _result(Opcode.GET)
    return b"".join(missing if node is None else got + node_body(node) for node in nodes) + _LAST


def _result(opcode: Opcode) -> bytes:
    return _MULTI_HEADER.pack(opcode, False, 0)


def _error_result(code: int) -> bytes:
    return _MULTI_HEADER.pack(_ERROR_RESULT, False, code) + _INT.pack(code)


def _stat(node: StoreNode, length: int) -> bytes:
    created = node.created
    return _STAT.pack(created, created, 0, 0, node.version, 0, 0, node.owner, length, 0, created)


def _buffer(data: bytes) -> bytes:
    return _INT.pack(len(data)) + data


def _frame(*parts: bytes) -> bytes:
    return b"".join((_INT.pack(sum(map(len, parts))), *parts))
