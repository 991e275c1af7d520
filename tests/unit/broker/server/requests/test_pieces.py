"""Requests that are divided into pieces, and their joined answers."""

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server.handlers import load
from barnabas.broker.server.requests.pieces import MAX_ITEM_ELEMENTS, Pieces, elements
from barnabas.kafka.protocol.messages.describe_groups import DescribeGroupsRequest
from barnabas.kafka.protocol.messages.fetch import NodeEndpoint
from barnabas.kafka.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from barnabas.kafka.protocol.messages.produce import ProduceResponse

NESTED = Pieces("groups.topics.partition_indexes", "groups.topics.partitions", size=10)


def request(*groups):
    """Return a request with groups of topics of partitions: {"g": {"t": range(3)}}."""
    return OffsetFetchRequest(
        groups=[
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=None
                if topics is None
                else [
                    OffsetFetchRequestTopics(name=name, partition_indexes=list(numbers))
                    for name, numbers in topics.items()
                ],
            )
            for group_id, topics in groups
        ]
    )


def answer(piece):
    """Return the answer of a handler: one item for each, in order."""
    return OffsetFetchResponse(
        groups=[
            OffsetFetchResponseGroup(
                group_id=group.group_id,
                topics=[
                    OffsetFetchResponseTopics(
                        name=topic.name,
                        partitions=[
                            OffsetFetchResponsePartitions(partition_index=n) for n in topic.partition_indexes
                        ],
                    )
                    for topic in group.topics or ()
                ],
            )
            for group in piece.groups
        ]
    )


def in_pieces(pieces, whole):
    joined = None
    for piece in pieces.divide(whole):
        part = answer(piece.request)
        if joined is None:
            joined = part
        else:
            pieces.join(joined, part, piece.continued)
    return joined


@pytest.mark.parametrize(
    "groups",
    [
        [("g", {"t": range(100)})],
        [("g", {"t": range(100), "u": range(3), "v": range(55)}), ("h", {"t": range(11)})],
        [("g", {f"t{n}": range(2) for n in range(40)})],
        [(f"g{n}", {"t": range(4)}) for n in range(30)],
        [("g", None), ("h", {"t": range(25)}), ("i", None)],
        [("g", {"t": range(5)})],
    ],
)
def test_pieces_together_are_answered_as_the_whole(groups):
    whole = request(*groups)
    assert in_pieces(NESTED, whole) == answer(whole)
    assert all(NESTED.count(piece.request) <= NESTED.size + 2 for piece in NESTED.divide(whole))


def test_the_request_itself_stays_as_it_is():
    whole = request(("g", {"t": range(100)}))
    NESTED.divide(whole)
    assert whole == request(("g", {"t": range(100)}))


def test_a_topic_named_twice_is_not_taken_for_one():
    whole = request(("g", {"t": range(10)}), ("g", {"t": range(10)}))
    assert in_pieces(NESTED, whole) == answer(whole)


def test_what_is_repeated_is_answered_once():
    pieces = Pieces("groups", size=10, unique=True)
    (piece,) = pieces.divide(DescribeGroupsRequest(groups=["a", "b"] * 5000))
    assert piece.request.groups == ["a", "b"]
    nested = Pieces("groups.topics.partition_indexes", "groups.topics.partitions", size=100, unique=True)
    divided = nested.divide(
        request(("g", {"t": [1, 2, 1, 3]}), ("g", {"t": [3, 4]}), ("h", None), ("h", None))
    )
    assert [piece.request for piece in divided] == [
        request(("g", {"t": [1, 2, 3]}), ("g", {"t": [4]}), ("h", None))
    ]


def test_a_request_may_be_refused_as_a_whole():
    def check(_request):
        raise KafkaError(ErrorCode.POLICY_VIOLATION)

    with pytest.raises(KafkaError):
        Pieces("groups", size=1, check=check).divide(DescribeGroupsRequest(groups=["a", "b"]))


def test_elements_are_counted_however_deep():
    assert elements(request(("g", {"t": range(100)}), ("h", None))) == 2 + 1 + 100
    assert elements(DescribeGroupsRequest(groups=["a"] * 7)) == 7


def test_a_single_thing_with_too_many_elements_is_marked():

    pieces = Pieces("groups", size=10)
    large = request(*[("g", {"t": range(MAX_ITEM_ELEMENTS)})] + [("h", {"t": [1]})] * 10)
    assert [piece.is_too_large for piece in pieces.divide(large)] == [True, False]


@pytest.mark.parametrize("api", [api for api in load().values() if api.pieces], ids=lambda api: api.name)
def test_the_declared_arrays_exist(api):
    for pieces in api.pieces:
        for message, path in ((api.request, pieces._request), (api.response, pieces._response)):
            cls = message
            for name in path:
                (field,) = [field for field in cls.__fields__ if field.name == name]
                assert field.is_array
                cls = field.type


@pytest.mark.parametrize("api", [api for api in load().values() if api.listing], ids=lambda api: api.name)
def test_the_declared_listing_exists(api):
    cls = api.response
    for name in api.listing:
        (field,) = [field for field in cls.__fields__ if field.name == name]
        assert field.is_array
        cls = field.type


def test_joined_answers_have_the_address_of_each_broker_once():
    produced = Pieces("topic_data.partition_data", "responses.partition_responses", size=10)
    whole, part, last = (
        ProduceResponse(node_endpoints=[NodeEndpoint(node_id=node, host=f"b{node}") for node in nodes])
        for nodes in ((3,), (1, 3), ())
    )
    produced.join(whole, part, 0)
    produced.join(whole, last, 0)
    assert [(each.node_id, each.host) for each in whole.node_endpoints] == [(1, "b1"), (3, "b3")]
