"""The registry of handlers, and the common properties of all handlers."""

from __future__ import annotations

import copy
import inspect
import pkgutil
import sys
from typing import Any

import pytest
from tests.unit.broker.server.handlers.parts import others_than, required, stand_in
from tests.views import view_of

from barnabas.base.environment.environment import Environment
from barnabas.base.errors import ErrorCode, KafkaError
from barnabas.broker.config import BrokerConfig
from barnabas.broker.coordinator import GroupCoordinator, ShareCoordinator, TransactionCoordinator
from barnabas.broker.server import handlers
from barnabas.broker.server.auditing.trail import AuditTrail
from barnabas.broker.server.forwarding import Forwarding
from barnabas.broker.server.handlers import by_key, load
from barnabas.broker.server.requests.api import handles
from barnabas.broker.server.requests.context import NoConnection
from barnabas.broker.server.requests.long_work import LongWork
from barnabas.broker.server.requests.needs import Anyone
from barnabas.broker.server.requests.parts import Parts
from barnabas.broker.server.serving import served_apis
from barnabas.kafka.protocol import codec
from barnabas.kafka.protocol.framing import RequestHeader, encode_response, parse_response
from barnabas.kafka.protocol.messages.heartbeat import HeartbeatRequest
from barnabas.kafka.protocol.schema import Struct

APIS = load().values()
by_name = pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)


def filled(cls):
    """Return a message with one item in each of its arrays."""
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


def parts_of_a_broker():
    environment = Environment.of_system()
    nothing: Any = None
    real = (
        LongWork(environment),
        Forwarding(view_of(), nothing, nothing, NoConnection("PLAINTEXT")),
        AuditTrail(BrokerConfig(), environment),
    )
    return [*real, *others_than(real)]


def test_a_broker_with_all_parts_serves_every_api():
    assert list(served_apis(parts_of_a_broker())) == [api.key for api in APIS]


@pytest.mark.parametrize("kind", sorted(required(), key=lambda kind: kind.__name__))
def test_a_broker_that_lacks_a_part_or_has_two_of_a_kind_is_refused_before_it_serves(kind):
    parts = parts_of_a_broker()
    (one,) = (part for part in parts if isinstance(part, kind))
    with pytest.raises(TypeError, match=f"requires {kind.__name__}: no part of the broker has this type"):
        served_apis(part for part in parts if part is not one)
    with pytest.raises(TypeError, match=f"requires {kind.__name__}: .* and .* are of this type"):
        served_apis([*parts, one])


def coordinating(kind):
    coordinator = stand_in(kind)
    coordinator.partition_for = lambda key: len(key)
    return coordinator


@pytest.mark.parametrize("api", [api for api in APIS if api.confirmed_by], ids=lambda api: api.name)
def test_a_request_names_the_partitions_whose_leadership_is_confirmed(api):
    kinds = (GroupCoordinator, TransactionCoordinator, ShareCoordinator)
    parts = Parts([coordinating(kind) for kind in kinds])
    assert list(api.confirmed_by.partitions_of(parts)(filled(api.request)))


@pytest.mark.parametrize("whose", [{}, {"unconfirmed": "it only informs", "is_forwarded": True}])
def test_a_handler_that_does_not_say_whose_answer_it_is_is_refused(whose):
    with pytest.raises(TypeError, match="give one of confirmed_by, unconfirmed and is_forwarded"):
        handles(HeartbeatRequest, needs=[Anyone()], **whose)


def test_two_apis_of_one_key_are_refused():
    fetch = next(iter(APIS))
    other = copy.copy(fetch)
    with pytest.raises(ValueError, match=f"{fetch.name} and {fetch.name} have the same key, {fetch.key}"):
        by_key([fetch, other])
