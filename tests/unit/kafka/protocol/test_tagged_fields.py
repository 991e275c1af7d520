"""Tagged fields (KIP-482). kio rejects unknown ones, so this test has them by hand."""

import pytest

from barnabas.base.errors import ProtocolError
from barnabas.kafka.protocol.codec import decode, encode
from barnabas.kafka.protocol.framing import parse_request
from barnabas.kafka.protocol.messages.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    SupportedFeatureKey,
)
from barnabas.kafka.protocol.messages.fetch import FetchRequest, ReplicaState
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest

HEARTBEAT = encode(HeartbeatRequest(group_id="g", generation_id=7, member_id="m"), 4)


def with_tags(encoded: bytes, section: bytes) -> bytes:
    assert encoded[-1] == 0  # the empty section of a message without tagged fields
    return encoded[:-1] + section


@pytest.mark.parametrize(
    "section",
    [
        b"\x01\x00\x00",  # one field without content
        b"\x01\x05\x03abc",
        b"\x02\x05\x03abc\x06\x00",
        b"\x01\xff\xff\xff\xff\x0f\x01x",  # the highest tag there is
        b"\x01\x07\x80\x02" + bytes(256),  # a size of two bytes
        b"\x80\x02" + b"".join(bytes([tag & 127 | 128, tag >> 7]) + b"\x00" for tag in range(256)),
    ],
)
def test_unknown_tagged_fields_are_skipped(section: bytes) -> None:
    assert decode(HeartbeatRequest, 4, with_tags(HEARTBEAT, section)) == decode(
        HeartbeatRequest, 4, HEARTBEAT
    )


def test_unknown_tagged_fields_inside_an_array_are_skipped() -> None:
    # ApiVersions v3: error 0, one API (key 1, versions 0 to 2) with an unknown tag, throttle time, no tags.
    encoded = bytes.fromhex("0000 02 0001 0000 0002 01 09 02 abcd 00000000 00")
    (api,) = decode(ApiVersionsResponse, 3, encoded).api_keys
    assert (api.api_key, api.min_version, api.max_version) == (1, 0, 2)


def test_unknown_tagged_fields_among_known_ones_are_skipped() -> None:
    response = ApiVersionsResponse(
        supported_features=[SupportedFeatureKey(name="f", max_version=1)], finalized_features_epoch=5
    )
    encoded = encode(response, 4)
    section = encoded.index(b"\x02\x00")  # two fields, the first has tag 0
    spliced = encoded[:section] + b"\x03" + encoded[section + 1 :] + b"\x63\x02zz"
    assert decode(ApiVersionsResponse, 4, spliced) == response


def test_unknown_tagged_fields_in_the_request_header_are_skipped() -> None:
    header = bytes.fromhex("000c 0004 00000009 0002") + b"me" + b"\x01\x10\x02??"
    parsed, request = parse_request(header + HEARTBEAT)
    assert parsed.client_id == "me"
    assert request == decode(HeartbeatRequest, 4, HEARTBEAT)


def test_a_tagged_field_with_its_default_is_not_written() -> None:
    assert encode(FetchRequest(), 16) == encode(FetchRequest(replica_state=ReplicaState()), 16)
    assert len(encode(FetchRequest(replica_state=ReplicaState(replica_id=1)), 16)) > len(
        encode(FetchRequest(), 16)
    )


def test_tagged_fields_are_written_in_the_order_of_their_tags() -> None:
    request = FetchRequest(cluster_id="c", replica_state=ReplicaState(replica_id=1, replica_epoch=2))
    assert encode(request, 15).endswith(
        bytes.fromhex("02")
        + bytes.fromhex("00 02 02")
        + b"c"
        + bytes.fromhex("01 0d 00000001 0000000000000002 00")
    )


@pytest.mark.parametrize(
    ("section", "why"),
    [
        (b"\x01", "the section ends early"),
        (b"\x01\x05\x04abc", "the field ends early"),
        (b"\x01\x05\x02abc", "bytes are left over"),
        (b"\x01\xff\xff\xff\xff\xff\x01\x00", "a tag of more than five bytes"),
        (b"\x01\x05\xff\xff\xff\xff\x0f", "a size of four gigabytes"),
        (b"\xff\xff\xff\xff\x0f", "four billion fields"),
        (b"\x91\x4e" + b"\x05\x00" * 10001, "more than 10,000 fields"),
    ],
)
def test_broken_tagged_sections_are_refused(section: bytes, why: str) -> None:
    with pytest.raises(ProtocolError):
        decode(HeartbeatRequest, 4, with_tags(HEARTBEAT, section))


def test_a_known_tagged_field_of_the_wrong_size_is_refused() -> None:
    encoded = encode(ApiVersionsResponse(finalized_features_epoch=5), 4)
    wrong = encoded.replace(b"\x01\x01\x08", b"\x01\x01\x07")
    assert wrong != encoded
    with pytest.raises(ProtocolError, match="tag 1 of ApiVersionsResponse has a wrong size"):
        decode(ApiVersionsResponse, 4, wrong)


def test_a_version_before_flexible_ones_has_no_tagged_section() -> None:
    assert encode(ApiVersionsRequest(), 2) == b""
    with pytest.raises(ProtocolError):
        decode(ApiVersionsRequest, 2, b"\x00")
