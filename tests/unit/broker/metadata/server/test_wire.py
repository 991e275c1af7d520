"""The server decodes the messages of the brokers' client, and the client those of the server. Other input
does no harm.
"""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kazoo.security import OPEN_ACL_UNSAFE

from barnabas.broker.metadata.server import wire
from barnabas.broker.metadata.server.wire import ProtocolError, Reader
from barnabas.broker.metadata.store import ANY_VERSION, Check, Create, Delete, Operation, Set, StoreNode
from barnabas.broker.metadata.zookeeper.requests import (
    NO_NODE,
    Children,
    FailedOperation,
    Get,
    Multi,
    MultiRead,
    acl_bytes,
)

PATHS = st.sampled_from(["/a", "/a/b", "/ä/ö"])
VERSIONS = st.integers(-1, 2**31 - 1)
OPERATIONS: st.SearchStrategy[Operation] = st.one_of(
    st.builds(Create, PATHS, st.binary(max_size=5), st.booleans()),
    st.builds(Set, PATHS, st.binary(max_size=5), VERSIONS),
    st.builds(Delete, PATHS, VERSIONS),
    st.builds(Check, PATHS, VERSIONS),
)
NODES = st.builds(StoreNode, st.binary(max_size=5), VERSIONS, st.integers(0, 2**62), st.integers(0, 2**62))
ACL = acl_bytes(OPEN_ACL_UNSAFE)


@given(st.lists(OPERATIONS, max_size=5))
def test_transaction_is_read_as_it_was_written(operations: list[Operation]) -> None:
    request = Multi(operations, "", lambda path: ACL)
    assert Reader(request.serialize()).operations() == operations
    versions = [
        0 if isinstance(each, Create) else 7 if isinstance(each, Set) else ANY_VERSION for each in operations
    ]
    assert request.deserialize(wire.multi_body(operations, versions), 0) == versions


@given(st.lists(OPERATIONS, min_size=1, max_size=5), st.data())
def test_failed_transaction_names_its_operation_and_its_error(
    operations: list[Operation], data: st.DataObject
) -> None:
    failed = data.draw(st.integers(0, len(operations) - 1))
    request = Multi(operations, "", lambda path: ACL)
    body = wire.failed_multi_body(len(operations), failed, wire.Code.NO_NODE)
    (failure,) = request.deserialize(body, 0)
    assert isinstance(failure, FailedOperation)
    assert (failure.index, getattr(failure.error, "code", None)) == (failed, NO_NODE)


@given(st.lists(st.one_of(st.none(), NODES), max_size=4))
def test_nodes_are_read_as_they_were_written(nodes: list[StoreNode | None]) -> None:
    paths = [f"/n{number}" for number in range(len(nodes))]
    request = MultiRead(paths, "")
    assert Reader(request.serialize()).paths_to_read() == paths
    assert request.deserialize(wire.multi_read_body(nodes), 0) == nodes
    for node in nodes:
        if node is not None:
            assert Get("/a", "").deserialize(wire.node_body(node), 0) == node


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"])), max_size=4))
def test_names_are_read_as_they_were_written(names: list[str]) -> None:
    assert Children("/", "").deserialize(wire.names_body(names), 0) == names


@given(st.binary(max_size=60))
def test_any_bytes_are_a_request_or_a_protocol_error(data: bytes) -> None:
    for read in (Reader.header, Reader.connect, Reader.path, Reader.operations, Reader.paths_to_read):
        with contextlib.suppress(ProtocolError):
            read(Reader(data))


def test_operations_that_are_not_known_are_refused() -> None:
    with pytest.raises(ProtocolError, match="has the operation 77"):
        Reader(b"\0\0\0\x4d\0\0\0\0\0" + b"\0\0\0\x02/a").operations()
