"""ApiVersions: the APIs that a broker lists, by listener."""

import struct

import pytest

from barnabas.base.errors import ErrorCode
from barnabas.kafka.protocol.framing import RequestHeader, parse_response
from barnabas.kafka.protocol.messages.api_versions import ApiVersionsRequest
from barnabas.kafka.protocol.messages.describe_share_partitions import DescribeSharePartitionsRequest
from barnabas.kafka.protocol.messages.get_replica_log_info import GetReplicaLogInfoRequest


def advertised(response):
    return {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}


def request(**fields):
    return ApiVersionsRequest(**{"client_software_name": "test", "client_software_version": "1.0", **fields})


@pytest.mark.parametrize("version", range(5))
def test_every_version_tells_what_is_served(wire, version):
    response = wire(request(), version)
    assert response.error_code == 0
    found = advertised(response)
    assert found[0] == (0, 13)  # Produce, from 0 for librdkafka's sake
    assert found[1] == (4, 18)
    assert found[18] == (0, 4)


def test_the_classic_apis_are_served_in_the_versions_of_apache_kafka_4_2(wire):
    found = advertised(wire(request()))
    expected = {
        0: (0, 13),
        1: (4, 18),
        2: (1, 11),
        3: (0, 13),
        8: (2, 10),
        9: (1, 10),
        10: (0, 6),
        11: (0, 9),
        12: (0, 4),
        13: (0, 5),
        14: (0, 5),
        15: (0, 6),
        16: (0, 5),
        18: (0, 4),
        19: (2, 7),
        20: (1, 6),
        21: (0, 2),
        22: (0, 5),
        23: (2, 4),
        32: (1, 4),
        33: (0, 2),
        35: (1, 4),
        37: (0, 3),
        42: (0, 2),
        44: (0, 1),
        47: (0, 0),
        60: (0, 2),
        61: (0, 0),
        75: (0, 0),
    }
    assert {key: found.get(key) for key in expected} == expected


@pytest.mark.parametrize("version", [5, 77, -1])
def test_an_unknown_version_is_answered_in_v0_and_the_connection_stays(wire, version):
    wire.socket.sendall(struct.pack(">ihhihB", 11, 18, version, 5, -1, 0))
    response = parse_response(RequestHeader(18, 0, 5, None), wire.frame())
    assert response.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert advertised(response) == {18: (0, 4)}
    assert wire(request()).error_code == 0


@pytest.mark.parametrize("fields", [{"client_software_name": "a b"}, {"client_software_version": "-1"}])
def test_a_client_name_that_is_none_is_refused(wire, fields):
    assert wire(request(**fields)).error_code == ErrorCode.INVALID_REQUEST
    assert wire(request(**fields), 2).error_code == 0


def test_only_brokers_of_barnabas_see_the_api_whose_key_kafka_has_given_to_another(wire):
    asked = GetReplicaLogInfoRequest.api_key
    assert asked not in advertised(wire(request()))
    assert asked not in advertised(wire(request(), 2))
    assert advertised(wire(request(client_software_name="barnabas")))[asked] == (0, 0)


def test_clients_with_another_name_do_not_see_the_api_that_only_barnabas_has(wire):
    asked = DescribeSharePartitionsRequest.api_key
    assert asked not in advertised(wire(request()))
    assert advertised(wire(request(client_software_name="barnabas")))[asked] == (1, 1)
    assert advertised(wire(request(), 0))[asked] == (1, 1)  # our own client sends this version
