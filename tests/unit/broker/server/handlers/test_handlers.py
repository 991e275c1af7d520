"""The registry, and what all handlers have in common."""

from __future__ import annotations

import inspect
import pkgutil
import sys
from unittest.mock import MagicMock

import pytest

from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.server import handlers
from barnabas.broker.server.handlers import load
from barnabas.broker.server.serving import served_apis
from barnabas.kafka.protocol import codec
from barnabas.kafka.protocol.framing import RequestHeader, encode_response, parse_response
from barnabas.kafka.protocol.schema import Struct

APIS = load().values()
by_name = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def filled(cls):
    """A message with one element in each of its arrays, so that an answer has something to be about."""
    message = cls()
    for field in cls.__fields__:
        if field.is_array:
            one = filled(field.type) if isinstance(field.type, type) else default_of(field.type)
            setattr(message, field.name, [one])
    return message


def default_of(primitive):
    return {"string": "x", "uuid": bytes(range(16))}.get(primitive.name, 0)


def error_codes(value):
    if isinstance(value, list):
        return [code for item in value for code in error_codes(item)]
    if not isinstance(value, Struct):
        return []
    codes = [getattr(value, f.name) for f in value.__fields__ if f.name.endswith("error_code")]
    return codes + [code for field in value.__fields__ for code in error_codes(getattr(value, field.name))]


@by_name
def test_an_escaped_error_is_answered_in_the_apis_own_shape_in_every_version(api):
    error = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "a bug")
    for version in range(api.versions[0], api.versions[1] + 1):
        request = filled(api.request)
        if api.name == "Produce":
            request.acks = 1
        request = codec.decode(api.request, version, codec.encode(request, version))
        header = RequestHeader(api.key, version, 1, None)
        frame = b"".join(encode_response(header, api.on_error(request, error)))[4:]
        assert ErrorCode.UNKNOWN_SERVER_ERROR in error_codes(parse_response(header, frame)), version


@by_name
def test_the_versions_served_are_all_of_the_messages(api):
    assert api.versions == api.request.versions


@by_name
def test_a_handlers_module_opens_with_its_api_and_versions(api):
    first = inspect.cleandoc(sys.modules[api.handle.__module__].__doc__).splitlines()[0]
    low, high = api.versions
    versions = f"v{low}-{high}" if low != high else f"v{low}"
    assert first.startswith(f"{api.name} {versions}:")


def test_each_handlers_module_declares_one_api():
    modules = [name for _, name, _ in pkgutil.iter_modules(handlers.__path__)]
    assert sorted(api.handle.__module__.rpartition(".")[2] for api in APIS) == sorted(modules)


def test_every_api_is_in_the_table_of_what_a_broker_serves():
    parts = dict.fromkeys(inspect.signature(served_apis).parameters, MagicMock())
    parts["forwarding"] = MagicMock(forwarded=lambda served: served, local={})
    assert list(served_apis(**parts)) == [api.key for api in APIS]


#: what a broker in doubt answers all the same (ADR 15), and why
ANSWERED_IN_DOUBT = {
    "the in-sync replicas commit it": {"Produce", "WriteTxnMarkers", "DeleteRecords"},
    "it promises a prefix of the log": {"Fetch"},
    "it tells what this broker holds": {"DescribeLogDirs", "AlterReplicaLogDirs", "GetReplicaLogInfo"},
    "it only informs": {"DescribeProducers", "ListGroups", "ListTransactions"},
    "it is of the connection": {"ApiVersions", "SaslHandshake", "SaslAuthenticate"},
    "it is of the client's own metrics": {"GetTelemetrySubscriptions", "PushTelemetry"},
    "it tells what the image shows": {
        *("Metadata", "FindCoordinator", "DescribeCluster", "DescribeTopicPartitions"),
        *("ListPartitionReassignments", "ListConfigResources"),
        *("DescribeAcls", "DescribeClientQuotas", "DescribeConfigs", "DescribeDelegationToken"),
        "DescribeUserScramCredentials",
    },
    "the controller decides it": {
        *("Envelope", "AllocateProducerIds", "AlterPartition", "AlterPartitionReassignments"),
        *("CreateTopics", "DeleteTopics", "CreatePartitions", "ElectLeaders", "UpdateFeatures"),
        *("AlterConfigs", "IncrementalAlterConfigs", "AlterClientQuotas", "AlterUserScramCredentials"),
        *("CreateAcls", "DeleteAcls", "UnregisterBroker"),
        *("CreateDelegationToken", "RenewDelegationToken", "ExpireDelegationToken"),
    },
}


def test_every_api_waits_for_a_confirmation_or_has_a_reason_not_to(monkeypatch):
    confirmed = set()

    def noting(served, *_):
        confirmed.add(served.api.name)
        return served

    monkeypatch.setattr("barnabas.broker.server.serving.confirmed", noting)
    parts = dict.fromkeys(inspect.signature(served_apis).parameters, MagicMock())
    parts["forwarding"] = MagicMock(forwarded=lambda served: served, local={})
    served_apis(**parts)
    answered = set().union(*ANSWERED_IN_DOUBT.values())
    assert not confirmed & answered
    assert {api.name for api in APIS} - confirmed == answered
